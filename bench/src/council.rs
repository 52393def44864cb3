//! Decisions: in memory on one thread compared with `OmniPaxos`, durably over loopback compared with their
//! parts, and a thousand councils concurrently.
//!
//! The core is measured like all pure computations: thread CPU time, the best of many short alternating
//! rounds. Commits use wall-clock time. The acceptors are separate processes: this program in another role,
//! with the service that `holdoff acceptor` runs, its defaults, and a disk that every reply waits for.

mod acceptors;
mod commit;
mod core;
mod many;
mod register;

use std::process::ExitCode;

use crate::row::Row;
use acceptors::Acceptors;

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = core::rows();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return rows };
    rows.extend(measured("commits", runtime.block_on(commits())));
    rows.extend(measured("many councils", runtime.block_on(councils())));
    rows
}

/// Acts as an acceptor, if this process was started for that.
pub(crate) fn play(arguments: &[String]) -> Option<ExitCode> {
    acceptors::play(arguments)
}

async fn commits() -> Result<Vec<Row>, String> {
    commit::rows(&Acceptors::start()?).await
}

async fn councils() -> Result<Vec<Row>, String> {
    many::rows(&mut Acceptors::start()?).await
}

fn measured(what: &str, rows: Result<Vec<Row>, String>) -> Vec<Row> {
    rows.unwrap_or_else(|why| {
        eprintln!("council: {what}: not measured, {why}");
        // A contestant that fails has missed the bar.
        vec![Row::beside(what, "", f64::NAN, ("", f64::NAN)).bar("measured", false)]
    })
}
