//! A ledger of three nodes: transactions a second beside openraft's, how long one takes beside what it is made of, and how
//! soon a node that was away has caught up.
//!
//! The nodes are three hosts in this process with links over loopback between them, for openraft's three are in this process,
//! too: in neither does anything lie between a client and its node. All goes by the clock on the wall.

mod behind;
mod clients;
mod cluster;
mod lone;
mod raft;
mod rates;

use crate::row::Row;
use behind::Way;

pub(crate) fn rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return measured("ledger", Err("there is no runtime".to_owned())) };
    let mut rows = measured("transactions", runtime.block_on(rates::rows()));
    rows.extend(measured("one client", runtime.block_on(lone::rows())));
    rows.extend(measured("catching up by snapshot", runtime.block_on(behind::rows(Way::Snapshot))));
    rows.extend(measured("catching up entry by entry", runtime.block_on(behind::rows(Way::Entries))));
    rows
}

fn measured(what: &str, rows: Result<Vec<Row>, String>) -> Vec<Row> {
    rows.unwrap_or_else(|why| {
        eprintln!("ledger: {what}: not measured, {why}");
        // Who takes part and fails has missed the bar.
        vec![Row::beside(what, "", f64::NAN, ("", f64::NAN)).bar("measured", false)]
    })
}
