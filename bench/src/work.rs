//! Durable jobs that do nothing, on one Postgres with fsync on: submitting and processing them.
//!
//! Every contestant gets the same server, a fresh database for each turn, one process that submits and two
//! that work. Processing is measured from the start signal until the database shows that no job is left;
//! completions that only a handler has seen do not count. The contestants alternate in rounds, and the best
//! round counts. `HOLDOFF_BENCH_JOBS` sets the number of jobs; a contestant that claims jobs one by one gets
//! a tenth.

mod contestant;
mod crates;
mod graphile;
mod holdoff;
mod pgbench;
mod turn;

use holdoff_testbed::{Options, Postgres, postgres_binaries};
use tokio::runtime::Runtime;

use contestant::Contestant;
pub(crate) use contestant::Process;
pub(crate) use holdoff::{open, play, start, submit_all, workers};
use turn::{Rates, run_turn};

use crate::row::Row;

/// Enough rounds for a good one for every contestant: a shared machine loses whole seconds.
const ROUNDS: usize = 6;
const JOBS: u32 = 100_000;
const JOBS_VARIABLE: &str = "HOLDOFF_BENCH_JOBS";
/// The number of jobs in one submission.
const SUBMIT_BATCH: u32 = 1000;
/// The number of processes that process jobs.
const WORKERS: usize = 2;
const SUBMIT: &str = "submit";
const PROCESS: &str = "process";

/// The defaults of Postgres, except for memory as on a usual server and a WAL so long that no checkpoint
/// occurs in a turn. Its files are kept, so that no contestant has to create new ones.
const SETTINGS: [(&str, &str); 3] =
    [("shared_buffers", "256MB"), ("max_wal_size", "4GB"), ("min_wal_size", "2GB")];

/// The role of a contestant in the comparison.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Ours,
    Peer,
    /// The ceiling: the database with only our writes, in batches of this size.
    Ceiling(u32),
}

/// The result of a contestant so far.
enum Progress {
    /// It is not installed, and cannot be.
    Absent,
    Measured(Rates),
    /// It failed in some round.
    Failed,
}

struct Entry {
    role: Role,
    contestant: Box<dyn Contestant>,
    progress: Progress,
}

impl Entry {
    fn new(role: Role, contestant: impl Contestant + 'static) -> Self {
        Self { role, contestant: Box::new(contestant), progress: Progress::Absent }
    }

    fn rate(&self, rate: fn(&Rates) -> f64) -> f64 {
        if let Progress::Measured(rates) = &self.progress { rate(rates) } else { f64::NAN }
    }

    fn install(&mut self) {
        match self.contestant.install() {
            Ok(()) => self.progress = Progress::Measured(Rates::NONE),
            Err(why) => eprintln!("{}: not measured, {why}", self.contestant.name()),
        }
    }

    fn take_turn(&mut self, runtime: &Runtime, server: &Postgres) {
        let Progress::Measured(before) = self.progress else { return };
        let (contestant, name) = (&*self.contestant, self.contestant.name());
        let jobs = if contestant.is_batched() { jobs() } else { jobs() / 10 };
        self.progress = match run_turn(runtime, server, contestant, jobs) {
            Ok(rates) => {
                eprintln!("{name}: submit {:.0}/s, process {:.0}/s", rates.submit, rates.process);
                Progress::Measured(before.best(rates))
            }
            Err(why) => {
                eprintln!("{name}: not measured, {why}");
                Progress::Failed
            }
        };
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), Some(_)) = (runtime, postgres_binaries()) else {
        eprintln!("work: not measured, Postgres is not installed");
        return Vec::new();
    };
    let mut entries = [
        Entry::new(Role::Ours, holdoff::Holdoff),
        Entry::new(Role::Peer, graphile::Node { is_batched: true }),
        Entry::new(Role::Peer, graphile::Node { is_batched: false }),
        Entry::new(Role::Peer, crates::GRAPHILE),
        Entry::new(Role::Peer, crates::RIVER),
        Entry::new(Role::Ceiling(500), pgbench::Pgbench { batch: 500 }),
        Entry::new(Role::Ceiling(1000), pgbench::Pgbench { batch: 1000 }),
    ];
    entries.iter_mut().for_each(Entry::install);
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start_with(&Options { fsync: true, settings });
    for _ in 0..ROUNDS {
        for entry in &mut entries {
            entry.take_turn(&runtime, &server);
        }
    }
    let mut rows = compared(SUBMIT, &entries, |rates| rates.submit);
    rows.extend(compared(PROCESS, &entries, |rates| rates.process));
    rows
}

fn jobs() -> u32 {
    std::env::var(JOBS_VARIABLE).ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(JOBS)
}

/// Returns our figure beside those of all other contestants.
fn compared(what: &str, entries: &[Entry], rate: fn(&Rates) -> f64) -> Vec<Row> {
    let best_of = |role: Role| {
        let rates = entries.iter().filter(|entry| entry.role == role).map(|entry| entry.rate(rate));
        rates.fold(f64::NAN, f64::max)
    };
    let (ours, best_peer) = (best_of(Role::Ours), best_of(Role::Peer));
    for entry in entries.iter().filter(|entry| (entry.rate(rate) / best_peer).is_finite()) {
        let (name, rate) = (entry.contestant.name(), entry.rate(rate));
        eprintln!("{what}: {name}: {rate:.0}/s, {:.2} of the best peer", rate / best_peer);
    }
    let is_ours = |entry: &Entry| entry.role == Role::Ours;
    // A contestant that fails has missed the bar.
    let takes_part = |entry: &Entry| is_ours(entry) && !matches!(entry.progress, Progress::Absent);
    let is_held = what == PROCESS && entries.iter().any(takes_part);
    let row = |entry: &Entry| {
        let theirs = entry.rate(rate);
        let row = Row::beside(what, "/s", ours, (&entry.contestant.name(), theirs));
        let is_our_ceiling = entry.role == Role::Ceiling(holdoff::BATCH);
        let is_best_peer = entry.role == Role::Peer && theirs >= best_peer;
        match () {
            () if is_held && is_our_ceiling => row.bar("≥ 60 %", ours >= 0.6 * theirs),
            () if is_held && is_best_peer => row.bar("≥ 1.5 ×", ours >= 1.5 * theirs),
            () if what == SUBMIT && is_best_peer => row.bar("≥ 1 ×", ours >= theirs),
            () => row,
        }
    };
    entries.iter().filter(|entry| !is_ours(entry)).map(row).collect()
}
