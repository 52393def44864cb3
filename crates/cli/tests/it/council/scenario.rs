//! The fault scenario of a council, independent of the environment of its acceptors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use holdoff_net::SecretKey;
use serde_json::Value;

use crate::council::device::{Device, answer};
use crate::council::environment::{Acceptor, Environment};
use crate::council::history::{Guest, History, MemberOperation};

const WORKERS: usize = 4;
const ROUNDS: usize = 12;
const GUESTS: usize = 3;

/// Founds a council, lets all devices change it concurrently under faults, and checks their responses.
pub(crate) fn run(environment: &mut impl Environment, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut acceptors: Vec<_> =
        (0..3).map(|number| Acceptor::start(environment, number, directory.path())).collect();
    let founder = Device::new(directory.path().join("founder"));
    let names: Vec<_> = acceptors.iter().map(|acceptor| acceptor.name.clone()).collect();
    let council = found(&founder, &names);
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let device = Device::new(directory.path().join(format!("device-{number}")));
            join(&device, &founder, &council, &format!("device-{number}"), &names);
            device
        })
        .collect();
    let guests: Vec<String> =
        (0..GUESTS).map(|_| SecretKey::generate().unwrap().public().to_string()).collect();
    let late = SecretKey::generate().unwrap().public().to_string();
    let (history, done) = (History::new(), [const { AtomicUsize::new(0) }; WORKERS]);
    thread::scope(|scope| {
        for (number, device) in workers.iter().enumerate() {
            let (history, guests, done) = (&history, &guests, &done);
            let mut rng = Rng::with_seed(seed * 100 + number as u64);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    work(device, number, guests, history, &mut rng);
                    done[number].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let wait_for = |share: usize| {
            let all = || done.iter().map(|done| done.load(Ordering::Relaxed)).sum::<usize>();
            while all() < WORKERS * ROUNDS * share / 10 {
                thread::sleep(Duration::from_millis(20));
            }
        };
        // The second fault begins only after the first has healed, so that a majority is available at all times.
        wait_for(1);
        environment.isolate(2, acceptors[2].process());
        wait_for(4);
        environment.heal(2, acceptors[2].process());
        acceptors[0].kill_and_wipe(environment);
        see_wiped(&founder, &acceptors[0]);
        assert_eq!(founder.run(&["acceptors", "remove", acceptors[0].key()])["outcome"], "committed");
        assert_eq!(founder.run(&["acceptors", "add", &acceptors[0].name])["outcome"], "committed");
        // A further operation builds on the change. A device that has missed the change can learn it from an acceptor
        // that stayed.
        assert_eq!(founder.run(&["add", &late, "--name", "late"])["outcome"], "committed");
        // The acceptor that came back is now needed for a majority.
        environment.isolate(1, acceptors[1].process());
        wait_for(9);
        environment.heal(1, acceptors[1].process());
    });
    let checked = history.check();
    agree(&workers.iter().chain([&founder]));
    eprintln!("{checked}: linearizable");
}

/// Founds a council with the acceptors of these names. Returns its id.
pub(crate) fn found(founder: &Device, acceptors: &[String]) -> String {
    let mut words = vec!["init", "--name", "founder"];
    for acceptor in acceptors {
        words.extend(["--acceptor", acceptor]);
    }
    founder.run(&words)["council"].as_str().unwrap().to_owned()
}

pub(crate) fn join(device: &Device, founder: &Device, council: &str, name: &str, acceptors: &[String]) {
    let mut words = vec!["join", council, "--wait", "2m"];
    for acceptor in acceptors {
        words.extend(["--acceptor", acceptor]);
    }
    let mut joining = device.spawn(&words);
    let mut reader = std::io::BufReader::new(joining.stdout.take().unwrap());
    let mut key = String::new();
    std::io::BufRead::read_line(&mut reader, &mut key).unwrap();
    let key: Value = serde_json::from_str(&key).unwrap();
    let added = founder.run(&["add", key["key"].as_str().unwrap(), "--name", name]);
    assert_eq!(added["outcome"], "committed");
    let mut output = joining.wait_with_output().unwrap();
    std::io::Read::read_to_end(&mut reader, &mut output.stdout).unwrap();
    let joined = answer(&words, &output);
    assert_eq!((&joined["is_member"], joined["council"].as_str()), (&Value::Bool(true), Some(council)));
}

/// Waits until the device reports that the acceptor has lost its disk.
fn see_wiped(device: &Device, acceptor: &Acceptor) {
    for _ in 0..50 {
        let reply = device.run(&["acceptors", "list"]);
        let acceptors = reply["acceptors"].as_array().unwrap();
        let health = &acceptors.iter().find(|it| it["key"] == acceptor.key()).unwrap()["health"];
        if health == "wiped" {
            return;
        }
        assert!(health == "unreachable" || health == "connecting", "{reply}");
    }
    panic!("the status never reports that {} was wiped", acceptor.name);
}

/// Adds or removes a guest, or lists the members. The first device is killed repeatedly.
fn work(device: &Device, number: usize, guests: &[String], history: &History, rng: &mut Rng) {
    let guest = rng.usize(..guests.len());
    let id = format!("{:032x}", rng.u128(..));
    let kills = if number == 0 { rng.usize(1..4) } else { 0 };
    let kills: Vec<_> = (0..kills).map(|_| Duration::from_millis(rng.u64(5..400))).collect();
    let guest_number = Guest::try_from(guest).unwrap();
    let device_number = u32::try_from(number).unwrap();
    history.record(device_number, || match rng.u8(..5) {
        0 | 1 => {
            let words = ["--id", &id, "add", &guests[guest], "--name", "guest"];
            Some(MemberOperation::Add(guest_number, slot(&device.run_killed(&words, &kills))?))
        }
        2 | 3 => {
            let words = ["--id", &id, "remove", &guests[guest]];
            Some(MemberOperation::Remove(guest_number, slot(&device.run_killed(&words, &kills))?))
        }
        _ => {
            let reply = device.run(&["members"]);
            assert_eq!(reply["is_current"], true);
            let there =
                |key: &String| reply["members"].as_array().unwrap().iter().any(|it| it["key"] == **key);
            let seen: BTreeSet<Guest> =
                (0..).zip(guests).filter(|(_, key)| there(key)).map(|(number, _)| number).collect();
            Some(MemberOperation::Read(seen, reply["slot"].as_u64().unwrap()))
        }
    });
}

/// Returns the slot of the commit, with an inner `None` if the operation changed nothing. Returns an outer `None` if
/// the operation was withdrawn between two runs.
#[expect(clippy::option_option, reason = "an absent operation differs from an absent slot")]
fn slot(reply: &Value) -> Option<Option<u64>> {
    match reply["outcome"].as_str() {
        Some("committed") => Some(reply["slot"].as_u64()),
        Some("already_satisfied") => Some(None),
        Some("not_committed") => None,
        _ => panic!("{reply}"),
    }
}

/// Asserts that devices at the same slot have the same history, and that all devices finally reach the same slot.
pub(crate) fn agree<'a>(devices: &(impl Iterator<Item = &'a Device> + Clone)) {
    let mut histories: BTreeMap<u64, String> = BTreeMap::new();
    // A status request may itself decide a pending slot, which advances the next device.
    for _ in 0..5 {
        let replies: Vec<_> = devices.clone().map(|device| device.run(&["status"])).collect();
        for it in &replies {
            let (slot, chain) = (it["slot"].as_u64().unwrap(), it["chain"].to_string());
            assert_eq!(
                histories.entry(slot).or_insert(chain.clone()),
                &chain,
                "two histories of the same council: {replies:#?}"
            );
        }
        let slots: BTreeSet<_> = replies.iter().map(|it| it["slot"].as_u64()).collect();
        if slots.len() == 1 && replies.iter().all(|it| it["pending"] == serde_json::json!([])) {
            return;
        }
    }
    panic!("the devices do not reach the same slot: {histories:?}");
}
