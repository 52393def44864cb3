//! Locks: the rate of uncontended acquisitions, the time from a release to the next acquisition, and the
//! number of statements meanwhile.
//!
//! Every contender opens the store by itself, so that contenders do not queue inside one process. The
//! releasing and the acquiring contender read the same clock. Rates use wall-clock time, alternate between a
//! few pairs of each, and report the median round.

mod contention;
mod pairs;

use holdoff_lock::Locks;
use holdoff_testbed::{Options, Postgres, postgres_binaries};
use tempfile::TempDir;

use crate::row::Row;

/// Enough connections for all waiters, two for each and some to spare; and a log with the name of the
/// database, for the database that enables it.
const SETTINGS: [(&str, &str); 4] = [
    ("max_connections", "400"),
    ("shared_buffers", "256MB"),
    ("log_line_prefix", "%d|"),
    ("log_parameter_max_length", "0"),
];

/// The store of the locks in a measurement.
enum LockStore {
    Memory,
    Sqlite(TempDir),
    Postgres(Postgres),
}

impl LockStore {
    fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "Postgres",
        }
    }

    /// Returns the URL of an unused store.
    fn fresh(&self) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            Self::Sqlite(folder) => {
                let name = format!("{:x}.db", fastrand::Rng::new().u64(..));
                format!("sqlite:{}", folder.path().join(name).display())
            }
            Self::Postgres(server) => server.create_database("lock"),
        }
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let (Ok(runtime), Ok(folder)) = (runtime, tempfile::tempdir()) else { return Vec::new() };
    let mut stores = vec![LockStore::Memory, LockStore::Sqlite(folder)];
    if postgres_binaries().is_some() {
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        stores.push(LockStore::Postgres(Postgres::start_with(&Options { fsync: true, settings })));
    }
    runtime.block_on(measure(&stores))
}

async fn measure(stores: &[LockStore]) -> Vec<Row> {
    let mut rows = Vec::new();
    for store in stores {
        rows.extend(measured(store, "pairs", pairs::rows(store).await));
    }
    for store in stores {
        if let LockStore::Postgres(server) = store {
            rows.extend(measured(store, "statements", contention::statement_rows(server).await));
        }
    }
    for store in stores {
        rows.extend(measured(store, "hand-offs", contention::hand_off_rows(store).await));
    }
    rows
}

fn measured(store: &LockStore, what: &str, rows: Result<Vec<Row>, String>) -> Vec<Row> {
    rows.unwrap_or_else(|why| {
        let name = format!("{}: {what}", store.name());
        eprintln!("lock: {name}: not measured, {why}");
        // A contestant that fails has missed the bar.
        vec![Row::beside(&name, "", f64::NAN, ("", f64::NAN)).bar("measured", false)]
    })
}

async fn open(url: &str) -> Result<Locks, String> {
    Locks::open(url).await.map_err(|error| error.to_string())
}
