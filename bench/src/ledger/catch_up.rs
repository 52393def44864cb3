//! The catch-up time of a node that was down: from its start until its head equals the leader's head.
//!
//! By default the leader has a snapshot in place of most of the missing entries; if it keeps more entries, it
//! sends them one by one. The benchmark checks which way was used: a node that received a snapshot has no
//! history from before it.

use std::time::Duration;

use holdoff_ledger::Options;

use super::cluster::{Cluster, fill};
use crate::measure::now;
use crate::row::Row;

const ENTRIES: u64 = 100_000;
const ENTRIES_VARIABLE: &str = "HOLDOFF_BENCH_ENTRIES";
/// The number of clients that write the entries.
const CLIENTS: usize = 1024;
/// The limit in seconds.
const BAR: f64 = 5.0;
/// After this time the catch-up has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// The way in which a node catches up.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum CatchUp {
    Snapshot,
    Entries,
}

pub(super) async fn rows(by: CatchUp) -> Result<Vec<Row>, String> {
    let configured = std::env::var(ENTRIES_VARIABLE).ok().and_then(|entries| entries.parse().ok());
    let entries: u64 = configured.unwrap_or(ENTRIES);
    let kept = usize::try_from(2 * entries).map_err(|error| error.to_string())?;
    let (what, options) = match by {
        CatchUp::Snapshot => ("by snapshot", Options::default()),
        CatchUp::Entries => ("entry by entry", Options { kept, ..Options::default() }),
    };
    let took = catch_up(entries, by, options).await?.as_secs_f64();
    let row = Row::beside(&format!("{entries} behind, {what}"), "s", took, ("", f64::NAN));
    Ok(vec![row.bar(&format!("≤ {BAR} s"), took <= BAR)])
}

async fn catch_up(entries: u64, by: CatchUp, options: Options) -> Result<Duration, String> {
    let mut cluster = Cluster::start(false, options).await?;
    let (slot, node) = cluster.follower().await?;
    let from = node.watch_status().borrow().head.index;
    drop(node);
    cluster.stop(slot).await;
    let leader = cluster.leader().await?;
    let start = now();
    fill(&leader, CLIENTS, entries).await?;
    eprintln!(
        "ledger: {entries} entries written by two of three nodes in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let head = cluster.leader().await?.watch_status().borrow().head.index;

    let start = now();
    let node = cluster.restart(slot).await?;
    let mut status = node.watch_status();
    let caught_up = tokio::time::timeout(LIMIT, status.wait_for(|status| status.head.index >= head)).await;
    let took = start.elapsed();
    caught_up.map_err(|_| "the node did not catch up in time")?.map_err(|_| "the node has stopped")?;

    let history = node.history(from, 1).await.map_err(|error| error.to_string())?;
    let actual = if history.is_ok() { CatchUp::Entries } else { CatchUp::Snapshot };
    if actual == by { Ok(took) } else { Err("the node caught up in the other way".to_owned()) }
}
