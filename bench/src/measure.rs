//! Measurement: thread CPU time as the minimum over many rounds, collected durations, and the latency of the disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use redb::{Database, TableDefinition};
use rustix::time::{ClockId, clock_gettime};

/// The number of rounds for each contestant: enough to outlast disturbances of a second.
const ROUNDS: usize = 1500;
/// The number of calls in a round.
pub(crate) const CALLS: u32 = 10_000;

/// A contestant: runs [`CALLS`] calls.
pub(crate) type Contestant<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// Returns the CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Returns the nanoseconds per call of each contestant: the best of many rounds. The contestants alternate,
/// so that disturbances of the machine affect all of them.
pub(crate) fn contest(mut contestants: Vec<Contestant<'_>>) -> Vec<(&'static str, f64)> {
    let mut best = vec![Duration::MAX; contestants.len()];
    for _ in 0..ROUNDS {
        for ((_, run), best) in contestants.iter_mut().zip(&mut best) {
            let start = cpu_time();
            run();
            *best = (*best).min(cpu_time().saturating_sub(start));
        }
    }
    let per_call = |best: &Duration| best.as_secs_f64() * 1e9 / f64::from(CALLS);
    contestants.iter().zip(&best).map(|((name, _), best)| (*name, per_call(best))).collect()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The durations of repeated measurements.
#[derive(Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the quantile in thousandths, in milliseconds.
    pub(crate) fn ms(&mut self, thousandths: usize) -> f64 {
        self.0.sort_unstable();
        let index = (self.0.len() * thousandths / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(index).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}

/// Returns the duration of this call.
pub(crate) fn timed<E: ToString>(run: impl FnOnce() -> Result<(), E>) -> Result<Duration, String> {
    let start = now();
    run().map_err(|error| error.to_string())?;
    Ok(start.elapsed())
}

const ROWS: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("rows");
/// The approximate size of a stored vote.
const ROW: [u8; 400] = [7; 400];

/// A file and a store without any other layer.
pub(crate) struct BareDisk {
    file: File,
    database: Database,
    next: u64,
}

impl BareDisk {
    pub(crate) fn new(folder: &Path) -> Result<Self, String> {
        let file = File::create(folder.join("bare")).map_err(|error| error.to_string())?;
        let database = Database::create(folder.join("bare.redb")).map_err(|error| error.to_string())?;
        Ok(Self { file, database, next: 0 })
    }

    /// Overwrites a page and syncs it.
    pub(crate) fn sync(&self) -> Result<Duration, String> {
        timed(|| self.file.write_all_at(&[7; 4096], 0).and_then(|()| self.file.sync_data()))
    }

    /// Inserts a row into the store and commits it durably.
    pub(crate) fn store(&mut self) -> Result<Duration, String> {
        self.next += 1;
        timed(|| -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            transaction.open_table(ROWS)?.insert(self.next, ROW.as_slice())?;
            Ok(transaction.commit()?)
        })
    }
}
