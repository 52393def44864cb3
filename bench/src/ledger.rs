//! A ledger of three nodes: transactions a second compared with openraft, the latency of one transaction
//! compared with its parts, and the catch-up time of a node that was down.
//!
//! The nodes are three hosts in this process with links over loopback between them. The three openraft nodes
//! are in this process too, so that in both cases a client calls its node directly. All measurements use
//! wall-clock time.

mod catch_up;
mod cluster;
mod latency;
mod rates;

use crate::row::Row;
use catch_up::CatchUp;

pub(crate) fn rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return measured("ledger", Err("the runtime did not start".to_owned())) };
    let mut rows = measured("transactions", runtime.block_on(rates::rows()));
    rows.extend(measured("one client", runtime.block_on(latency::rows())));
    rows.extend(measured("catching up by snapshot", runtime.block_on(catch_up::rows(CatchUp::Snapshot))));
    rows.extend(measured("catching up entry by entry", runtime.block_on(catch_up::rows(CatchUp::Entries))));
    rows
}

fn measured(what: &str, rows: Result<Vec<Row>, String>) -> Vec<Row> {
    rows.unwrap_or_else(|why| {
        eprintln!("ledger: {what}: not measured, {why}");
        // A contestant that fails has missed the bar.
        vec![Row::beside(what, "", f64::NAN, ("", f64::NAN)).bar("measured", false)]
    })
}
