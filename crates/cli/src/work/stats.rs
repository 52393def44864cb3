//! `holdoff work stats`

use std::io::Write;

use super::Desk;
use crate::failure::Failure;
use crate::output::{Table, time};

pub(super) async fn run(desk: &Desk) -> Result<(), Failure> {
    let lanes = desk.work.stats().await?;
    let mut out = anstream::stdout();
    if desk.json {
        return Ok(writeln!(out, "{}", serde_json::json!(lanes))?);
    }
    if lanes.is_empty() {
        anstream::eprintln!("no steps");
        return Ok(());
    }
    let mut table = Table::new([
        "operation",
        "queue",
        "namespace",
        "due",
        "waiting",
        "running",
        "blocked",
        "failed",
        "conflicted",
        "stale",
        "oldest due",
    ]);
    for lane in &lanes {
        let paused = if lane.paused { " (paused)" } else { "" };
        let oldest = if lane.due > 0 { time(lane.oldest_due) } else { String::new() };
        let counts =
            [lane.due, lane.waiting, lane.running, lane.blocked, lane.failed, lane.conflicted, lane.stale];
        let named = [format!("{}{paused}", lane.operation), lane.queue.clone(), lane.namespace.clone()];
        table.row(named.into_iter().chain(counts.map(|count| count.to_string())).chain([oldest]));
    }
    table.print(&mut out)?;
    Ok(())
}
