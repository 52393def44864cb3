//! A device is killed after a majority has voted for its operation and before the device learns of it.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use holdoff_net::SecretKey;
use serde_json::{Value, json};

use crate::council::device::{Device, Relay};
use crate::council::environment::{Acceptor, Loopback};
use crate::council::scenario::{agree, found, join};
use crate::process::Process;

/// The delay of the votes to the device. The kill must take less time.
const LATE: Duration = Duration::from_millis(400);
/// The maximum number of attempts, because on a busy machine a kill may come too late.
const MAX_ATTEMPTS: usize = 6;

pub(crate) fn run() {
    let directory = tempfile::tempdir().unwrap();
    let acceptors: Vec<_> =
        (0..3).map(|number| Acceptor::start(&Loopback, number, directory.path())).collect();
    let relays: Vec<_> = acceptors.iter().map(|acceptor| Relay::start(acceptor.address())).collect();
    let through = |(acceptor, relay): (&Acceptor, &Relay)| format!("{}@{}", acceptor.key(), relay.address());
    let names: Vec<_> = acceptors.iter().zip(&relays).map(through).collect();
    let [witness, device] = ["witness", "device"].map(|name| Device::new(directory.path().join(name)));
    let council = found(&witness, &names);
    join(&device, &witness, &council, "device", &names);
    let watching = Watching::start(&witness);
    // The watch is active once it has reported an operation.
    watching.wait_for(&add(&device).0);

    let killed_at = (0..MAX_ATTEMPTS).position(|_| is_killed_in_between(&device, &watching, &relays));
    eprintln!("killed in between at attempt {:?}", killed_at.map(|attempts| attempts + 1));
    assert!(killed_at.is_some(), "no kill came between the decision and its arrival at the device");
    drop(watching);
    agree(&[&witness, &device].into_iter());
}

/// Adds a member. Returns the id of the operation and the slot in which it was committed.
fn add(device: &Device) -> (String, u64) {
    let (id, guest) = (new_id(), SecretKey::generate().unwrap().public().to_string());
    let reply = device.run(&["--id", &id, "add", &guest, "--name", "guest"]);
    assert_eq!(reply["outcome"], "committed");
    (id, reply["slot"].as_u64().unwrap())
}

fn new_id() -> String {
    format!("{:032x}", Rng::new().u128(..))
}

/// Kills the device as soon as the witness knows the decision, and restarts the device. Returns whether the kill came
/// before the device knew it.
fn is_killed_in_between(device: &Device, watching: &Watching, relays: &[Relay]) -> bool {
    let (id, guest) = (new_id(), SecretKey::generate().unwrap().public().to_string());
    let words = ["--id", &id, "add", &guest, "--name", "guest"];
    for relay in relays {
        relay.delay(LATE);
    }
    let mut adding = device.spawn(&words);
    let slot = watching.wait_for(&id);
    adding.kill().unwrap();
    adding.wait().unwrap();
    for relay in relays {
        relay.delay(Duration::ZERO);
    }

    // Reads the state of the device without its acceptors.
    for relay in relays {
        relay.close(true);
    }
    let left = device.run_within("200ms", &["status"]);
    for relay in relays {
        relay.close(false);
    }
    let is_between = left["slot"].as_u64().unwrap() < slot;
    if is_between {
        assert_eq!((&left["pending"], &left["is_current"]), (&json!([id]), &json!(false)), "{left}");
    }

    let reply = device.run(&words);
    assert_eq!((&reply["outcome"], reply["slot"].as_u64()), (&json!("committed"), Some(slot)), "{reply}");
    let (later, _) = add(device);
    assert_eq!(watching.count_until(&later, &id), 0, "the operation was applied once");
    let members = device.run(&["members"]);
    let there = members["members"].as_array().unwrap().iter().filter(|it| it["key"] == *guest).count();
    assert_eq!(there, 1);
    is_between
}

/// `council watch` on a device, and its output.
struct Watching {
    _process: Process,
    slots: mpsc::Receiver<Value>,
}

impl Watching {
    fn start(device: &Device) -> Self {
        let mut process = Process::start(&mut device.command(&["watch"]));
        let (sender, slots) = mpsc::channel();
        let lines = process.lines();
        thread::spawn(move || {
            for line in lines {
                drop(sender.send(serde_json::from_str(&line).unwrap()));
            }
        });
        Self { _process: process, slots }
    }

    /// Returns the next slot and the operations that it applied.
    fn next(&self) -> (u64, Vec<String>) {
        let reply = self.slots.recv_timeout(CONDITION_TIMEOUT).expect("the watch reports a slot");
        let operations = reply["operations"].as_array().unwrap();
        let done = operations.iter().filter(|it| it["invalid"].is_null());
        (reply["slot"].as_u64().unwrap(), done.map(|it| it["id"].as_str().unwrap().to_owned()).collect())
    }

    /// Waits for the slot that applied this operation, and returns it.
    fn wait_for(&self, id: &str) -> u64 {
        loop {
            let (slot, done) = self.next();
            if done.iter().any(|done| done == id) {
                return slot;
            }
        }
    }

    /// Returns how often an operation is applied before another one.
    fn count_until(&self, end: &str, id: &str) -> usize {
        let mut times = 0;
        loop {
            let (_, done) = self.next();
            times += done.iter().filter(|done| *done == id).count();
            if done.iter().any(|done| done == end) {
                return times;
            }
        }
    }
}
