//! The worker processes, and the faults of the processes, of Postgres, and of a ledger.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use holdoff_testbed::Postgres;
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};

use crate::chaos::resource::{Resource, now_us};
use crate::chaos::worker::LEASE;
use crate::chaos::{worker, worker_name};
use crate::node::Cluster;

pub(crate) type Shared = Arc<Mutex<Fleet>>;

pub(crate) fn lock(fleet: &Shared) -> MutexGuard<'_, Fleet> {
    fleet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a time between half and one and a half of this.
fn about(rng: &mut Rng, time: Duration) -> Duration {
    time.mul_f64(0.5 + rng.f64())
}

/// The slot that is paused. The other slots may be killed.
const PAUSED: usize = 0;

/// Waits until a process in these slots holds a lock. Returns its slot, the lock, and the token; `None` at the end.
async fn holder(
    fleet: &Shared,
    slots: RangeInclusive<usize>,
    until: Instant,
) -> Option<(usize, String, i64)> {
    while Instant::now() < until {
        let held = |slot| lock(fleet).held_by(slot).map(|(key, token)| (slot, key, token));
        if let Some(found) = slots.clone().find_map(held) {
            return Some(found);
        }
        sleep(Duration::from_millis(1)).await;
    }
    None
}

/// Kills processes until the end, and returns the number of kills.
pub(crate) async fn kill(fleet: Shared, mut rng: Rng, until: Instant) -> u64 {
    let mut kills = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(900))).await;
        lock(&fleet).replace(rng.usize(PAUSED + 1..SIZE));
        kills += 1;
    }
    kills
}

/// Pauses a holder until another process has written with a higher token, and then resumes it while it still considers
/// the lock its own. Returns the number of pauses.
pub(crate) async fn pause(fleet: Shared, resource: Arc<Resource>, mut rng: Rng, until: Instant) -> u64 {
    let mut pauses = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(200))).await;
        let Some((_, key, token)) = holder(&fleet, PAUSED..=PAUSED, until).await else { return pauses };
        lock(&fleet).signal(PAUSED, Signal::STOP);
        let paused = Instant::now();
        // Possibly no other process wants the lock.
        while paused.elapsed() < 4 * LEASE && resource.highest(&key).await.is_none_or(|seen| seen <= token) {
            sleep(Duration::from_millis(10)).await;
        }
        lock(&fleet).signal(PAUSED, Signal::CONT);
        pauses += u64::from(paused.elapsed() > LEASE);
    }
    pauses
}

/// Repeatedly terminates some connections, and returns their number.
pub(crate) async fn terminate(url: String, mut rng: Rng, until: Instant) -> u64 {
    let mut terminated = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(200))).await;
        let query = "select count(*) filter (where pg_terminate_backend(pid)) from (
                select pid from pg_stat_activity where application_name = 'holdoff'
                order by md5(pid::text || $1) limit 2
            ) unlucky";
        // The server may be down at the moment.
        let Ok(mut connection) = PgConnection::connect(&url).await else { continue };
        let cut = sqlx::query_scalar::<_, i64>(query).bind(rng.u64(..).to_string());
        terminated += u64::try_from(cut.fetch_one(&mut connection).await.unwrap_or(0)).unwrap();
    }
    terminated
}

/// A crash of the server: the times around it, in microseconds since 1970.
pub(crate) struct Crash {
    begun: i64,
    ended: i64,
}

impl Crash {
    /// How long a commit that does not wait for the disk may stay in memory: three times `wal_writer_delay`, and a
    /// reserve for a busy machine.
    const UNWRITTEN_US: i64 = 2_000_000;

    /// Returns whether the crash may have lost a grant that was made at this time.
    pub(crate) fn may_lose(&self, granted_us: i64) -> bool {
        (self.begun - Self::UNWRITTEN_US..=self.ended).contains(&granted_us)
    }
}

/// Crashes the server while a process holds a lock, and keeps it down for longer than a lease every second time.
/// Returns the crashes.
pub(crate) async fn crash(fleet: Shared, server: Arc<Postgres>, until: Instant) -> Vec<Crash> {
    let mut crashes = Vec::new();
    loop {
        sleep(LEASE / 10).await;
        let Some((slot, key, token)) = holder(&fleet, PAUSED + 1..=SIZE - 1, until).await else {
            return crashes;
        };
        // A process that still holds the lock now will hold it for long.
        sleep(LEASE / 10).await;
        if lock(&fleet).held_by(slot) != Some((key, token)) {
            continue;
        }
        let (begun, away) = (now_us(), Arc::clone(&server));
        if crashes.len() % 2 == 0 {
            tokio::task::spawn_blocking(move || away.stop_immediately()).await.unwrap();
            sleep(LEASE).await;
        }
        let back = Arc::clone(&server);
        tokio::task::spawn_blocking(move || back.restart_immediately()).await.unwrap();
        crashes.push(Crash { begun, ended: now_us() });
        sleep(LEASE).await;
    }
}

/// The ledger's node that is never killed, because the witness runs on it. The other is made the leader, and then
/// killed.
pub(crate) const SPARED: usize = 0;
const VICTIM: usize = 1;

/// Kills a leader of a ledger, and starts it again. Returns how often. A process that leads is killed like all others.
pub(crate) async fn kill_leader(cluster: Arc<Cluster>, until: Instant) -> u64 {
    let mut killed = 0;
    while Instant::now() < until {
        sleep(LEASE / 2).await;
        if cluster.leading_node() == Some(VICTIM) {
            cluster.kill(VICTIM);
            killed += 1;
            sleep(LEASE).await;
            cluster.start(VICTIM).await;
        } else {
            // The leader may be down, or reject the leadership transfer.
            drop(cluster.at(SPARED).transfer_leadership(Some(cluster.at(VICTIM).key())).await);
        }
    }
    killed
}

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
    pub(crate) async fn finish(&mut self, timeout: Duration) {
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
        tokio::time::timeout(timeout, finishing).await.expect("a process did not finish its turns");
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
