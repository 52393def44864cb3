//! Locks: how many a second when nobody else wants them, how soon the next has one that is let go, and how often the
//! database is asked meanwhile.
//!
//! Every contender opens the store by itself, so that none stands in line before another of its process. Who lets go
//! and who is next look at the same clock. Rates go by the clock on the wall, a few
//! pairs of each in turns, and the median round counts.

mod crowd;
mod hand_off;
mod pairs;
mod statements;

use holdoff_lock::Locks;
use holdoff_testbed::{Options, Postgres, postgres_binaries};
use tempfile::TempDir;

use crate::row::Row;

/// Enough connections for all who wait, two for each and some to spare; and a log that says who said what, for the
/// database that asks for it.
const SETTINGS: [(&str, &str); 4] = [
    ("max_connections", "400"),
    ("shared_buffers", "256MB"),
    ("log_line_prefix", "%d|"),
    ("log_parameter_max_length", "0"),
];

/// Where the locks of a turn are kept.
enum Place {
    Memory,
    Sqlite(TempDir),
    Postgres(Postgres),
}

impl Place {
    fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "Postgres",
        }
    }

    /// The address of a store that nobody has used.
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
    let mut places = vec![Place::Memory, Place::Sqlite(folder)];
    if postgres_binaries().is_some() {
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        places.push(Place::Postgres(Postgres::start_with(&Options { fsync: true, settings })));
    }
    runtime.block_on(measure(&places))
}

async fn measure(places: &[Place]) -> Vec<Row> {
    let mut rows = Vec::new();
    for place in places {
        rows.extend(measured(place, "pairs", pairs::rows(place).await));
    }
    for place in places {
        if let Place::Postgres(server) = place {
            rows.extend(measured(place, "statements", statements::rows(server).await));
        }
    }
    for place in places {
        rows.extend(measured(place, "hand-offs", hand_off::rows(place).await));
    }
    rows
}

fn measured(place: &Place, what: &str, rows: Result<Vec<Row>, String>) -> Vec<Row> {
    rows.unwrap_or_else(|why| {
        let name = format!("{}: {what}", place.name());
        eprintln!("lock: {name}: not measured, {why}");
        // Who takes part and fails has missed the bar.
        vec![Row::beside(&name, "", f64::NAN, ("", f64::NAN)).bar("measured", false)]
    })
}

async fn open(url: &str) -> Result<Locks, String> {
    Locks::open(url).await.map_err(|error| error.to_string())
}
