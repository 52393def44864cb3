//! The daemon under load: tasks accepted over HTTP, one for each request, sent by a separate process.
//!
//! The daemon is the release binary beside this program, with its defaults: every commit waits for the disk,
//! on SQLite (`synchronous=FULL`) and on Postgres (`fsync` on). Connections are kept alive; each sends its
//! next request after the last response. The best of a few rounds counts, because a shared machine loses
//! whole seconds.

mod daemon;
mod load;
mod soak;

use std::process::ExitCode;
use std::time::Duration;

use holdoff_testbed::{Options, Postgres, postgres_binaries};

use crate::row::Row;
pub(crate) use daemon::Daemon;
use load::Load;
pub(crate) use load::length;
pub(crate) use soak::soak;

const ROUNDS: usize = 5;
const CONNECTIONS: usize = 64;
/// A task that no worker executes.
const TASK: &str = r#"{"operation": "nothing", "payload": {"order": 17, "paid": true}}"#;
const ROUND: Duration = Duration::from_secs(5);
/// The required rate of accepted tasks a second.
const BAR: f64 = 5000.0;

/// The defaults of Postgres, except for memory as on a usual server.
const SETTINGS: [(&str, &str); 2] = [("shared_buffers", "256MB"), ("max_wal_size", "4GB")];

/// Acts as the clients, if this process was started for that.
pub(crate) fn play(arguments: &[String]) -> Option<ExitCode> {
    load::play(arguments)
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    match tempfile::tempdir() {
        Ok(folder) => {
            let url = format!("sqlite:{}", folder.path().join("work.db").display());
            rows.extend(measured("SQLite", &url));
        }
        Err(error) => eprintln!("server: SQLite: not measured, {error}"),
    }
    if let Some(server) = postgres() {
        rows.extend(measured("Postgres", &server.create_database("server")));
    }
    rows
}

/// Starts a Postgres whose commits wait for the disk, if it is installed.
fn postgres() -> Option<Postgres> {
    postgres_binaries()?;
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Some(Postgres::start_with(&Options { fsync: true, settings }))
}

fn measured(name: &str, url: &str) -> Vec<Row> {
    measure(name, url).unwrap_or_else(|why| {
        eprintln!("server: {name}: not measured, {why}");
        // A contestant that fails has missed the bar.
        vec![
            Row::beside(&format!("{name}: tasks taken in"), "/s", f64::NAN, ("", f64::NAN))
                .bar("measured", false),
        ]
    })
}

fn measure(name: &str, url: &str) -> Result<Vec<Row>, String> {
    let daemon = Daemon::start(url)?;
    let mut best: Option<Load> = None;
    let mut errors = 0;
    for _ in 0..ROUNDS {
        let load = Load::from_another_process(&daemon.address, CONNECTIONS, ROUND, TASK)?;
        eprintln!("server: {name}: {load}");
        errors += load.errors;
        if best.as_ref().is_none_or(|best| load.per_second > best.per_second) {
            best = Some(load);
        }
    }
    let best = best.ok_or("there were no rounds")?;
    let row =
        |what: &str, unit, figure| Row::beside(&format!("{name}: {what}"), unit, figure, ("", f64::NAN));
    Ok(vec![
        row("tasks taken in", "/s", best.per_second)
            .bar(&format!("≥ {BAR:.0}, no error"), best.per_second >= BAR && errors == 0),
        row("answered after, median", "ms", best.median_ms),
        row("answered after, p99", "ms", best.p99_ms),
        row("memory of the daemon", "MiB", daemon.resident_mib()),
    ])
}
