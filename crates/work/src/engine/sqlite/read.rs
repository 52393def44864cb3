//! Reads tasks and their attempts, and counts steps.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::look::select;
use super::rows::micros;
use crate::engine::Table;
use crate::engine::reading::{self, Group, LaneRow};
use crate::filter::{Filter, Page};
use crate::record::{AttemptRecord, Moment, QueueStats, TaskRecord};
use crate::store::Result;
use crate::{TaskId, TaskState};

pub(super) async fn task(
    readers: &SqlitePool,
    now: i64,
    id: TaskId,
    with_payloads: bool,
) -> Result<Option<TaskRecord>> {
    // One snapshot for both tables: a step that finishes meanwhile is in exactly one of them.
    let mut tx = readers.begin().await?;
    let page = Page { limit: u32::MAX, with_payloads, ..Page::default() };
    let filter = Filter::task(id);
    let mut steps = select(&mut tx, now, &filter, &page, Table::Steps, None).await?;
    steps.extend(select(&mut tx, now, &filter, &page, Table::Done, None).await?);
    if steps.is_empty() {
        return Ok(None);
    }
    steps.sort_by_key(|step| step.id);
    let query = "select a.step, a.attempt, a.lease, a.outcome, a.started_at, a.took_us, coalesce(w.name, ''), a.class,
            a.message, a.delay_us
        from holdoff_attempts a left join holdoff_workers w on w.id = a.worker
        where a.task = ?1 order by a.started_at, a.step, a.lease";
    let rows = sqlx::query(query).bind(id.as_uuid()).fetch_all(&mut *tx).await?;
    let attempts = rows.iter().map(|row| attempt(id, row)).collect::<std::result::Result<_, _>>()?;
    let query = "select parent, child from holdoff_edges where task = ?1 order by parent, child";
    let edges = sqlx::query_as(query).bind(id.as_uuid()).fetch_all(&mut *tx).await?;
    let state = TaskState::of(steps.iter().map(|step| step.state));
    Ok(Some(TaskRecord { id, state, now: Moment(now), steps, attempts, edges }))
}

fn attempt(task: TaskId, row: &SqliteRow) -> std::result::Result<AttemptRecord, sqlx::Error> {
    Ok(reading::read_attempt!(task, row))
}

pub(super) async fn stats(readers: &SqlitePool, now: i64, stale_after: Duration) -> Result<Vec<QueueStats>> {
    let mut tx = readers.begin().await?;
    let lanes = "select id, namespace, queue, operation, paused from holdoff_lanes";
    let lanes: Vec<LaneRow> = sqlx::query_as(lanes).fetch_all(&mut *tx).await?;
    // The first query reads the index alone, and the second reads the table alone, in its own order. A single query
    // would alternate between the two for every step and take many times as long.
    let query = "select lane, state, count(*), sum(due_at <= ?1), 0, ?1 - min(due_at)
        from holdoff_steps group by lane, state";
    let mut groups: Vec<Group> = sqlx::query_as(query).bind(now).fetch_all(&mut *tx).await?;
    let query = "select lane, 1, 0, 0, count(*), null from holdoff_steps
        where +state in (1, 2) and created_at <= ?1 group by +lane";
    let long_ago = now.saturating_sub(micros(stale_after));
    let stale: Vec<Group> = sqlx::query_as(query).bind(long_ago).fetch_all(&mut *tx).await?;
    groups.extend(stale);
    let done = done_by_lane(&mut tx).await?;
    Ok(reading::stats(lanes, groups, done))
}

/// The number of finished steps counted at once. SQLite sorts by lane in memory, and without a bound it would sort all
/// steps at once.
const COUNTED_AT_ONCE: i64 = 50_000;

async fn done_by_lane(tx: &mut SqliteConnection) -> Result<Vec<(i32, i64)>> {
    let ends = "select (select min(id) from holdoff_done), (select max(id) from holdoff_done)";
    let (first, last): (Option<i64>, Option<i64>) = sqlx::query_as(ends).fetch_one(&mut *tx).await?;
    let (Some(mut from), Some(last)) = (first, last) else { return Ok(Vec::new()) };
    let mut counts: BTreeMap<i32, i64> = BTreeMap::new();
    let query =
        "select lane, count(*) from holdoff_done where id >= ?1 and id < ?2 and state = 3 group by lane";
    while from <= last {
        let to = from.saturating_add(COUNTED_AT_ONCE);
        let part: Vec<(i32, i64)> = sqlx::query_as(query).bind(from).bind(to).fetch_all(&mut *tx).await?;
        for (lane, count) in part {
            *counts.entry(lane).or_default() += count;
        }
        from = to;
    }
    Ok(counts.into_iter().collect())
}
