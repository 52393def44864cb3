//! The worker processes.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::chaos::{worker, worker_name};

/// The number of concurrent processes.
pub(crate) const SIZE: usize = 5;

/// Processes, each in a slot. Dropping this value kills all of them.
pub(crate) struct Fleet {
    /// The store URL of each slot.
    pub(crate) stores: Vec<String>,
    pub(crate) resource: String,
    pub(crate) logs: PathBuf,
    pub(crate) seed: u64,
    slots: Vec<Slot>,
    started: u64,
}

struct Slot {
    child: Child,
    log: PathBuf,
}

impl Fleet {
    pub(crate) fn start(stores: Vec<String>, resource: String, logs: PathBuf, seed: u64) -> Self {
        let mut fleet = Self { stores, resource, logs, seed, slots: Vec::new(), started: 0 };
        for slot in 0..SIZE {
            let slot = fleet.spawn(slot);
            fleet.slots.push(slot);
        }
        fleet
    }

    fn spawn(&mut self, slot: usize) -> Slot {
        self.started += 1;
        let log = self.logs.join(self.started.to_string());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([&worker_name(), "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.env(worker::STORE, &self.stores[slot]).env(worker::RESOURCE, &self.resource);
        command.env(worker::LOG, &log);
        command.env(worker::SEED, (self.seed ^ self.started).to_string());
        Slot { child: command.spawn().unwrap(), log }
    }

    /// Kills a process without notice, and starts another in its slot.
    pub(crate) fn replace(&mut self, slot: usize) {
        let old = &mut self.slots[slot].child;
        assert_alive(old);
        old.kill().unwrap();
        old.wait().unwrap();
        // The node of a ledger is started again with the same data: its disk must be free.
        self.slots[slot] = self.spawn(slot);
    }

    pub(crate) fn signal(&mut self, slot: usize, signal: Signal) {
        let child = &mut self.slots[slot].child;
        assert_alive(child);
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Returns the lock and the token that the process in a slot holds, as far as it has noted.
    pub(crate) fn held_by(&self, slot: usize) -> Option<(String, i64)> {
        let noted = std::fs::read_to_string(&self.slots[slot].log).unwrap_or_default();
        let last = noted.lines().rev().find(|line| !line.starts_with("taken"))?;
        let (key, rest) = last.strip_prefix("granted-")?.split_once(' ')?;
        Some((key.to_owned(), rest.split(' ').next()?.parse().ok()?))
    }

    /// Tells all processes to take one more turn and to exit. All must succeed.
    pub(crate) async fn finish(&mut self, patience: Duration) {
        for Slot { child, .. } in &mut self.slots {
            assert_alive(child);
            drop(child.stdin.take());
        }
        let finishing = async {
            for Slot { child, .. } in &mut self.slots {
                let status = loop {
                    if let Some(status) = child.try_wait().unwrap() {
                        break status;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                };
                assert!(status.success(), "a process ended with {status}");
            }
        };
        tokio::time::timeout(patience, finishing).await.expect("somebody does not get its turn");
    }
}

fn assert_alive(child: &mut Child) {
    if let Some(status) = child.try_wait().unwrap() {
        panic!("a process ended by itself, with {status}");
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for Slot { mut child, .. } in self.slots.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
