//! Durable jobs that do nothing, on one Postgres with fsync on: submitting them, and burning them down.
//!
//! Every contestant gets the same server, a fresh database for each turn, one process that submits and two that work.
//! Burning down is measured from the word to start until the database shows that nothing is left; what a handler
//! believes to be done does not count. Turns are taken in rounds, and the best round counts. `HOLDOFF_BENCH_JOBS` says
//! how many jobs there are; who takes them one by one gets a tenth.

mod contestant;
mod graphile;
mod heat;
mod holdoff;
mod pgbench;
mod process;

use holdoff_testbed::{Options, Postgres, postgres_binaries};

use contestant::Contestant;
use heat::{Rates, heat};
pub(crate) use holdoff::play;

use crate::row::Row;

const ROUNDS: usize = 3;
const JOBS: u32 = 100_000;
const JOBS_VARIABLE: &str = "HOLDOFF_BENCH_JOBS";
/// How many jobs are submitted at a time.
const SUBMIT_BATCH: u32 = 1000;
/// How many processes burn jobs down.
const WORKERS: usize = 2;

/// The defaults of Postgres, but for memory as on any server, and a log long enough that no checkpoint falls into
/// somebody's turn; its files are kept, so that nobody has to make new ones.
const SETTINGS: [(&str, &str); 3] =
    [("shared_buffers", "256MB"), ("max_wal_size", "4GB"), ("min_wal_size", "2GB")];

/// What a contestant is to us.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Ours,
    Peer,
    /// What the database gives if nothing but our writes is done, so many at a time.
    Ceiling(u32),
}

struct Entry {
    role: Role,
    contestant: Box<dyn Contestant>,
    rates: Rates,
}

pub(crate) fn rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), Some(_)) = (runtime, postgres_binaries()) else {
        eprintln!("work: not measured, Postgres is not installed");
        return Vec::new();
    };
    let mut entries = entries();
    // Who cannot take part says so, and keeps its empty figures.
    let mut takes_part: Vec<bool> = entries.iter().map(|entry| installs(&*entry.contestant)).collect();
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start_with(&Options { fsync: true, settings });
    for round in 1..=ROUNDS {
        for (entry, takes_part) in
            entries.iter_mut().zip(&mut takes_part).filter(|(_, takes_part)| **takes_part)
        {
            let contestant = &*entry.contestant;
            let jobs = if contestant.is_batched() { jobs() } else { jobs() / 10 };
            match heat(&runtime, &server, contestant, jobs) {
                Ok(rates) => {
                    let Rates { submit, burn_down } = rates;
                    eprintln!("round {round}: {}: {submit:.0}/s, {burn_down:.0}/s", contestant.name());
                    entry.rates = entry.rates.best(rates);
                }
                Err(why) => {
                    eprintln!("{}: not measured, {why}", contestant.name());
                    (entry.rates, *takes_part) = (Rates::NONE, false);
                }
            }
        }
    }
    let mut rows = compared("submit", &entries, |rates| rates.submit);
    rows.extend(compared("burn down", &entries, |rates| rates.burn_down));
    rows
}

fn entries() -> Vec<Entry> {
    let entry = |role, contestant| Entry { role, contestant, rates: Rates::NONE };
    vec![
        entry(Role::Ours, Box::new(holdoff::Holdoff)),
        entry(Role::Peer, Box::new(graphile::Node { is_batched: true })),
        entry(Role::Peer, Box::new(graphile::Node { is_batched: false })),
        entry(Role::Peer, Box::new(graphile::Rust)),
        entry(Role::Ceiling(500), Box::new(pgbench::Pgbench { batch: 500 })),
        entry(Role::Ceiling(1000), Box::new(pgbench::Pgbench { batch: 1000 })),
    ]
}

fn installs(contestant: &dyn Contestant) -> bool {
    let installed = contestant.install();
    if let Err(why) = &installed {
        eprintln!("{}: not measured, {why}", contestant.name());
    }
    installed.is_ok()
}

fn jobs() -> u32 {
    std::env::var(JOBS_VARIABLE).ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(JOBS)
}

/// Our figure beside everybody else's, and everybody's beside the best peer's.
fn compared(what: &str, entries: &[Entry], rate: fn(&Rates) -> f64) -> Vec<Row> {
    let rate_of = |wanted: &dyn Fn(Role) -> bool| {
        let rates = entries.iter().filter(|entry| wanted(entry.role)).map(|entry| rate(&entry.rates));
        rates.fold(f64::NAN, f64::max)
    };
    let ours = rate_of(&|role| role == Role::Ours);
    let best = rate_of(&|role| role == Role::Peer);
    let row = |entry: &Entry| {
        let theirs = rate(&entry.rates);
        let of_best = theirs / best;
        eprintln!("{what}: {}: {theirs:.0}/s, {of_best:.2} of the best peer", entry.contestant.name());
        let row = Row::beside(what, "/s", ours, (&entry.contestant.name(), theirs));
        let is_our_ceiling = entry.role == Role::Ceiling(holdoff::BATCH) && what == "burn down";
        if is_our_ceiling && ours.is_finite() { row.bar("≥ 60 %", ours >= 0.6 * theirs) } else { row }
    };
    entries.iter().filter(|entry| entry.role != Role::Ours).map(row).collect()
}
