//! Contention for one lock: each contender holds it for a moment, releases it, and requests it again. Measures the time
//! from a release to the acquisition by the next waiter, and the number of statements for each acquisition, counted in
//! the database's log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdoff_lock::{Guard, Locks};
use holdoff_testbed::Postgres;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{LockStore, open};
use crate::measure::now;
use crate::row::Row;

const KEY: &str = "the one";
/// The time for which each contender holds the lock.
const HOLD: Duration = Duration::from_millis(50);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Exceeds the duration of any hand-off: contenders without progress are an error.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// The way in which a contender acquires the lock.
#[derive(Clone, Copy)]
enum AcquireMode {
    /// With `Locks::acquire`, which waits for the lock.
    Wait,
    /// With the same statement, repeated at a fixed interval.
    Poll,
}

impl AcquireMode {
    async fn acquire(self, locks: &Locks) -> Result<Guard, String> {
        match self {
            Self::Wait => locks.acquire(KEY).await.map_err(|error| error.to_string()),
            Self::Poll => loop {
                if let Some(guard) = locks.try_acquire(KEY).await.map_err(|error| error.to_string())? {
                    break Ok(guard);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            },
        }
    }
}

/// Running contenders, until this is dropped.
struct Contenders {
    hand_offs: mpsc::UnboundedReceiver<Result<Duration, String>>,
    /// Dropping the set stops the contenders.
    _contenders: JoinSet<()>,
}

impl Contenders {
    /// Starts this many waiters and one holder. Returns when every contender could have held the lock once.
    async fn start(url: &str, waiting: usize, mode: AcquireMode) -> Result<Self, String> {
        let (sender, hand_offs) = mpsc::unbounded_channel();
        let released = Arc::new(Mutex::new(None));
        let first = open(url).await?;
        let mut all = vec![first.clone()];
        for _ in 0..waiting {
            // A store in memory is shared by clones only, which queue in the process.
            all.push(if url == "memory:" { first.clone() } else { open(url).await? });
        }
        let mut contenders = JoinSet::new();
        for locks in all {
            contenders.spawn(contend(locks, mode, Arc::clone(&released), sender.clone()));
        }
        let mut contenders = Self { hand_offs, _contenders: contenders };
        contenders.watch(waiting + 1).await?;
        Ok(contenders)
    }

    /// Returns the durations of the next hand-offs, each from the start of a release to the next guard.
    async fn watch(&mut self, hand_offs: usize) -> Result<Vec<Duration>, String> {
        let mut seen = Vec::with_capacity(hand_offs);
        while seen.len() < hand_offs {
            let next = tokio::time::timeout(PROGRESS_TIMEOUT, self.hand_offs.recv()).await;
            let next = next.map_err(|_| "no contender acquired the lock in time")?;
            seen.push(next.ok_or("every contender has stopped")??);
        }
        Ok(seen)
    }
}

async fn contend(
    locks: Locks,
    mode: AcquireMode,
    released: Arc<Mutex<Option<Instant>>>,
    sender: mpsc::UnboundedSender<Result<Duration, String>>,
) {
    let released = || released.lock();
    // Polling contenders start spread over the interval.
    tokio::time::sleep(POLL_INTERVAL.mul_f64(fastrand::Rng::new().f64())).await;
    loop {
        let guard = match mode.acquire(&locks).await {
            Ok(guard) => guard,
            Err(why) => break drop(sender.send(Err(why))),
        };
        if let Some(released) = released().take()
            && sender.send(Ok(now().duration_since(released))).is_err()
        {
            break;
        }
        tokio::time::sleep(HOLD).await;
        released().replace(now());
        if let Err(error) = guard.release().await {
            break drop(sender.send(Err(error.to_string())));
        }
        // A polling contender would acquire the lock again before any other contender polls.
        if matches!(mode, AcquireMode::Poll) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

const WAITERS: [usize; 3] = [2, 16, 64];
const HAND_OFFS: usize = 200;

pub(super) async fn hand_off_rows(store: &LockStore) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for waiting in WAITERS {
        let (median, p99) = hand_offs(store, waiting, AcquireMode::Wait).await?;
        let polled = match store {
            LockStore::Memory | LockStore::Sqlite(_) => (f64::NAN, f64::NAN),
            LockStore::Postgres(_) => hand_offs(store, waiting, AcquireMode::Poll).await?,
        };
        let name = format!("{}: hand-off, {waiting} wait", store.name());
        eprintln!("lock: {name}: median {median:.2} ms, p99 {p99:.2} ms; polled {polled:.2?} ms");
        let peer = if polled.0.is_nan() { "" } else { "polling every 100 ms" };
        rows.push(Row::beside(&format!("{name}, p50"), "ms", median, (peer, polled.0)));
        rows.push(Row::beside(&format!("{name}, p99"), "ms", p99, (peer, polled.1)));
    }
    Ok(rows)
}

/// Returns median and p99, in milliseconds.
async fn hand_offs(store: &LockStore, waiting: usize, mode: AcquireMode) -> Result<(f64, f64), String> {
    let mut contenders = Contenders::start(&store.fresh(), waiting, mode).await?;
    let mut seen = contenders.watch(HAND_OFFS).await?;
    seen.sort();
    let at = |share: usize| seen.get(seen.len() * share / 100).map_or(f64::NAN, Duration::as_secs_f64) * 1e3;
    Ok((at(50), at(99)))
}

const WAITING: usize = 64;
const ACQUISITIONS: u32 = 320;

/// The kinds of statements, by a part of their text.
const KINDS: [(&str, &str); 8] = [
    ("update holdoff.locks l", "acquire, fast path"),
    ("holdoff.lock_try(", "acquire"),
    ("update holdoff.locks set nonce", "release, fast path"),
    ("holdoff.lock_release(", "release"),
    ("update holdoff.locks", "renew"),
    ("holdoff.lock_withdraw(", "withdraw"),
    ("select token from holdoff.locks", "read back"),
    ("holdoff.", "other"),
];
/// The kind of a new connection's first statements, which count for neither mode.
const SET_UP: &str = "set up, not counted";

pub(super) async fn statement_rows(server: &Postgres) -> Result<Vec<Row>, String> {
    let ours = per_acquisition(server, "waiting", AcquireMode::Wait).await?;
    let polled = per_acquisition(server, "polling", AcquireMode::Poll).await?;
    let row = Row::beside(
        &format!("Postgres: statements, {WAITING} wait"),
        "each",
        ours,
        ("polling every 100 ms", polled),
    );
    Ok(vec![row.bar("≤ 0.25 ×", ours <= 0.25 * polled)])
}

async fn per_acquisition(server: &Postgres, name: &str, mode: AcquireMode) -> Result<f64, String> {
    let url = server.create_database(name);
    let database = url.rsplit('/').next().unwrap_or_default();
    server.psql("postgres", &format!("alter database \"{database}\" set log_statement = 'all'"));
    let mut contenders = Contenders::start(&url, WAITING, mode).await?;
    let before = server.log().len();
    contenders.watch(usize::try_from(ACQUISITIONS).unwrap_or_default()).await?;
    let log = server.log();
    let parts = count(log.get(before..).unwrap_or_default(), database);
    let each = |number: &u32| f64::from(*number) / f64::from(ACQUISITIONS);
    let shown = parts.iter().fold(String::new(), |mut shown, (kind, number)| {
        // Writing into a string cannot fail.
        let _ = write!(shown, ", {kind} {:.2}", each(number));
        shown
    });
    let all: u32 = parts.iter().filter(|(kind, _)| **kind != SET_UP).map(|(_, number)| number).sum();
    eprintln!("lock: statements for each acquisition, {name}: {:.2}{shown}", each(&all));
    Ok(each(&all))
}

/// Counts the statements in this database by kind. A statement begins on its own line; its further lines
/// begin with a tab.
fn count(log: &str, database: &str) -> BTreeMap<&'static str, u32> {
    let begins = [format!("{database}|LOG:  execute "), format!("{database}|LOG:  statement: ")];
    let mut parts = BTreeMap::new();
    for line in log.lines().filter(|line| begins.iter().any(|begin| line.starts_with(begin))) {
        let kind = KINDS.iter().find(|(part, _)| line.contains(part)).map_or(SET_UP, |(_, kind)| *kind);
        *parts.entry(kind).or_default() += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_counted_by_kind_for_one_database() {
        let log = "\
            a_1|LOG:  execute sqlx_s_1: select * from holdoff.lock_try($1)\n\
            a_1|LOG:  execute sqlx_s_2: update holdoff.locks\n\tset until = holdoff.lock_try(\n\
            a_1|LOG:  statement: LISTEN \"holdoff_locks\"\n\
            a_1|ERROR:  execute what?\n\
            b_2|LOG:  execute sqlx_s_1: select * from holdoff.lock_try($1)\n";
        assert_eq!(count(log, "a_1"), BTreeMap::from([("acquire", 1), ("renew", 1), (SET_UP, 1)]));
    }
}
