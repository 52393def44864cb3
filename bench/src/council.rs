//! Deciding: in memory on one thread beside `OmniPaxos`, durably over loopback beside what it is made of, and a thousand
//! councils at once.
//!
//! The core is measured like everything that only computes: thread CPU time, the best of many short rounds in turns.
//! Commits go by the clock on the wall. The acceptors are processes of their own: this program in another part, with the
//! service that `holdoff acceptor` runs, its defaults, and a disk that every answer waits for.

mod acceptors;
mod commit;
mod core;
mod many;
mod tally;

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

/// Plays an acceptor, if this process was started for that.
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
        // Who takes part and fails has missed the bar.
        vec![Row::beside(what, "", f64::NAN, ("", f64::NAN)).bar("measured", false)]
    })
}
