//! A worker process: it takes turns until it is killed, or until its standard input ends; then it takes one more turn.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use holdoff_lock::{Error, Guard, Locks, Settings};
use tokio::time::Instant;

use crate::chaos::faults::SIZE;
use crate::chaos::resource::{Resource, WriteOutcome};
use crate::node::cluster;

/// The environment variables that configure a process.
pub(crate) const STORE: &str = "HOLDOFF_CHAOS_STORE";
pub(crate) const RESOURCE: &str = "HOLDOFF_CHAOS_RESOURCE";
pub(crate) const LOG: &str = "HOLDOFF_CHAOS_LOG";
pub(crate) const SEED: &str = "HOLDOFF_CHAOS_WORKER_SEED";

/// The lease: how long a vanished holder blocks other contenders.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The number of locks.
const KEYS: u32 = 3;
/// The longest wait for a lock. No process waits so long after the faults, and so none does before.
const WAIT: Duration = Duration::from_secs(30);
/// The delay with which a task may be woken although the process was not paused.
const TICK: Duration = Duration::from_millis(5);

pub(crate) fn run_if_asked() {
    let [Ok(store), Ok(resource), Ok(log), Ok(seed)] = [STORE, RESOURCE, LOG, SEED].map(std::env::var) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let worker = Worker {
            locks: open(&store).await,
            resource: Resource::open(&resource).await,
            log: File::options().append(true).create(true).open(&log).unwrap(),
            lateness: Lateness::new(),
        };
        let is_over = Arc::new(AtomicBool::new(false));
        tokio::spawn(worker.lateness.clone().watch());
        let mut rng = Rng::with_seed(seed.parse().unwrap());
        let ending = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            ending.store(true, Ordering::SeqCst);
        });
        while !is_over.load(Ordering::SeqCst) {
            worker.turn(&mut rng).await;
        }
        worker.note("last", 0);
        worker.turn(&mut rng).await;
        worker.note("finished", 0);
        // A node of a ledger that exits takes its vote with it: the first ones would leave the last without a majority.
        while store.starts_with("ledger:") && finished(&log) < SIZE {
            tokio::time::sleep(10 * TICK).await;
        }
    });
    std::process::exit(0);
}

/// Returns the number of finished processes, by the logs beside this one.
fn finished(log: &str) -> usize {
    let logs = std::fs::read_dir(Path::new(log).parent().unwrap()).unwrap();
    let texts = logs.map(|log| std::fs::read_to_string(log.unwrap().path()).unwrap());
    texts.filter(|text| text.lines().any(|line| line.starts_with("finished"))).count()
}

/// Opens the store, and retries: the server may be down at the moment.
async fn open(store: &str) -> Locks {
    let settings = Settings::default().with_lease(LEASE);
    if let Some(invitation) = store.strip_prefix("ledger:") {
        return Locks::ledger(cluster::accept(invitation).await).with_settings(settings).unwrap();
    }
    loop {
        match Locks::open(store).await {
            Ok(locks) => return locks.with_settings(settings).unwrap(),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The longest delay with which this process was woken in the last few seconds, because it was paused or the machine is
/// overloaded.
#[derive(Clone)]
struct Lateness(Arc<Mutex<Late>>);

struct Late {
    slept: Instant,
    longest: Duration,
    at: Instant,
}

impl Lateness {
    fn new() -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(Late { slept: now, longest: Duration::ZERO, at: now })))
    }

    async fn watch(self) {
        loop {
            self.look(true);
            tokio::time::sleep(TICK).await;
        }
    }

    /// Returns the delay. The first caller after a pause sees it, even before the watching task was woken.
    fn look(&self, is_watcher: bool) -> Duration {
        let mut late = self.0.lock().unwrap();
        let by = late.slept.elapsed().saturating_sub(TICK);
        if by >= late.longest || late.at.elapsed() > 2 * LEASE {
            (late.longest, late.at) = (by, Instant::now());
        }
        if is_watcher {
            late.slept = Instant::now();
        }
        late.longest
    }
}

struct Worker {
    locks: Locks,
    resource: Resource,
    log: File,
    lateness: Lateness,
}

impl Worker {
    /// Notes an event with its time on the machine's clock, which is also the store's clock.
    #[allow(clippy::disallowed_methods, reason = "it is compared with the record of the store")]
    fn note(&self, what: &str, token: u64) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
        let late = self.lateness.look(false).as_micros();
        let line = format!("{what} {token} {now} {late}\n");
        (&self.log).write_all(line.as_bytes()).unwrap();
    }

    /// Acquires a lock, writes, holds it, writes again, and releases it.
    async fn turn(&self, rng: &mut Rng) {
        let key = format!("{}", rng.u32(..KEYS));
        // Sometimes longer than the lease, so that it is renewed.
        let hold = if rng.u32(..10) == 0 { LEASE * 4 / 3 } else { Duration::from_millis(rng.u64(1..60)) };
        let writes_late = rng.u32(..8) > 0;
        let guard = match self.locks.acquire(&key).wait(WAIT).await {
            Ok(guard) => guard,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                self.note("failed", 0);
                return;
            }
        };
        let token = guard.token().get();
        self.note(&format!("granted-{key}"), token);
        let work = async {
            self.write(&guard, "enter").await;
            tokio::time::sleep(hold).await;
            self.write(&guard, "leave").await;
        };
        if let Err(Error::Lost { .. }) = guard.run(work).await {
            self.note(&format!("lost-{key}"), token);
            if writes_late {
                // A write after the loss, which no program should make, and which the fence must reject.
                tokio::time::sleep(LEASE / 5).await;
                self.write(&guard, "late").await;
            }
        }
        let released = guard.release().await;
        self.note(if released.is_ok() { "released" } else { "unreleased" }, token);
    }

    /// Writes, and retries while the resource cannot be reached.
    async fn write(&self, guard: &Guard, what: &str) {
        loop {
            match self.resource.write(guard.key(), guard.token(), what).await {
                Ok(WriteOutcome::Accepted) => return self.note("taken", guard.token().get()),
                Ok(WriteOutcome::Stale) => return self.note("stale", guard.token().get()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}
