//! The worker processes.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use holdoff_testbed::libfaketime;
use rustix::process::{Pid, Signal, kill_process};

use crate::chaos::counts::Counts;
use crate::chaos::{worker, worker_name};

/// The number of workers that run at once.
pub(crate) const SIZE: usize = 4;

/// The clock error of each worker.
///
/// On SQLite the store uses the host's clock, but never less than the largest time seen. If the worker that is ahead
/// writes, the time of the store moves ahead for all workers, which ends all leases at once, and the worker that is
/// behind must follow.
const SKEWS: [Option<&str>; SIZE] = [None, Some("-1h"), Some("+1h"), None];

/// The time zone that each worker asks for. Holdoff's sessions use UTC in any case.
const ZONES: [&str; SIZE] = ["Pacific/Auckland", "America/Los_Angeles", "Asia/Kathmandu", "Pacific/Apia"];

/// The addresses and files that workers use.
pub(crate) struct Places {
    pub(crate) store: String,
    pub(crate) effects: String,
    pub(crate) seed: u64,
    pub(crate) log: PathBuf,
}

/// Worker processes, each in a slot with its own clock and time zone. Dropping the fleet kills them all.
pub(crate) struct Fleet {
    places: Places,
    counts: Arc<Counts>,
    slots: Vec<Slot>,
    leaving: Vec<Child>,
}

struct Slot {
    child: Child,
    /// Whether faults must leave the worker alone for now.
    is_spared: bool,
}

impl Fleet {
    pub(crate) fn start(places: Places, counts: Arc<Counts>) -> Self {
        let mut fleet = Self { places, counts, slots: Vec::new(), leaving: Vec::new() };
        for slot in 0..SIZE {
            let child = fleet.spawn(slot);
            fleet.slots.push(Slot { child, is_spared: false });
        }
        fleet
    }

    /// Returns the slots of the workers that may receive a fault.
    pub(crate) fn targets(&self) -> Vec<usize> {
        (0..SIZE).filter(|slot| !self.slots[*slot].is_spared).collect()
    }

    /// Kills a worker without warning, and starts another in its slot.
    pub(crate) fn replace(&mut self, slot: usize) {
        let child = self.spawn(slot);
        let mut old = std::mem::replace(&mut self.slots[slot].child, child);
        assert_alive(&mut old);
        old.kill().unwrap();
        old.wait().unwrap();
        forget_clock(&old);
        self.counts.kills.add(1);
    }

    /// Shuts a worker down gracefully, and starts another in its slot.
    pub(crate) fn dismiss(&mut self, slot: usize) {
        let child = self.spawn(slot);
        let mut old = std::mem::replace(&mut self.slots[slot].child, child);
        assert_alive(&mut old);
        drop(old.stdin.take());
        self.leaving.push(old);
        self.counts.shutdowns.add(1);
    }

    pub(crate) fn signal(&mut self, slot: usize, signal: Signal) {
        let child = &mut self.slots[slot].child;
        assert_alive(child);
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Sets whether faults must leave a worker alone.
    pub(crate) fn spare(&mut self, slot: usize, is_spared: bool) {
        self.slots[slot].is_spared = is_spared;
    }

    /// Asserts that no worker exited without a shutdown, and that each worker that was shut down exited successfully.
    pub(crate) fn check(&mut self) {
        for slot in &mut self.slots {
            assert_alive(&mut slot.child);
        }
        for mut child in self.leaving.drain(..) {
            let status = child.wait().unwrap();
            forget_clock(&child);
            assert!(status.success(), "a worker exited with {status} after its shutdown");
        }
    }

    fn spawn(&self, slot: usize) -> Child {
        let Places { store, effects, seed, log } = &self.places;
        let log = File::options().append(true).create(true).open(log).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([&worker_name(), "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let mut url = store.clone();
        if store.starts_with("postgres") {
            url = format!("{store}?options=-c%20timezone%3D{}", ZONES[slot]);
            self.counts.zones.add(1);
        }
        command.env(worker::STORE, url).env(worker::EFFECTS, effects).env(worker::SEED, seed.to_string());
        if let Some(skew) = SKEWS[slot] {
            let library = libfaketime().expect("libfaketime: run `cargo xtask test`, or install faketime");
            command.env("LD_PRELOAD", library).env("FAKETIME", skew).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            let count =
                if skew.starts_with('-') { &self.counts.slow_clocks } else { &self.counts.fast_clocks };
            count.add(1);
        }
        command.spawn().unwrap()
    }
}

fn assert_alive(child: &mut Child) {
    if let Some(status) = child.try_wait().unwrap() {
        panic!("a worker ended by itself, with {status}");
    }
}

/// Removes the files that libfaketime leaves behind when its process is killed.
fn forget_clock(child: &Child) {
    for name in ["sem.faketime_sem", "faketime_shm"] {
        let _ = std::fs::remove_file(format!("/dev/shm/{name}_{}", child.id()));
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let slots = self.slots.drain(..).map(|slot| slot.child);
        for mut child in slots.chain(self.leaving.drain(..)) {
            let _ = child.kill();
            let _ = child.wait();
            forget_clock(&child);
        }
    }
}
