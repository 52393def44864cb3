//! Reads tasks and their attempts, and counts steps.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row};

use super::look::select;
use super::select::Lanes;
use super::submit::micros;
use crate::engine::Table;
use crate::engine::reading::{self, Group, LaneRow};
use crate::filter::{Filter, Page};
use crate::record::{AttemptRecord, Moment, QueueStats, TaskRecord};
use crate::store::Result;
use crate::{TaskId, TaskState};

/// Restores the default planner settings for a transaction. Queries of operators are not on the hot path.
pub(super) async fn think_freely(tx: &mut PgConnection) -> Result<()> {
    let settings =
        "set local enable_seqscan = on; set local enable_hashjoin = on; set local enable_mergejoin = on";
    sqlx::raw_sql(settings).execute(tx).await?;
    Ok(())
}

pub(super) async fn task(pool: &PgPool, id: TaskId, with_payloads: bool) -> Result<Option<TaskRecord>> {
    // One snapshot for both tables: a step that finishes meanwhile is in exactly one of them.
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    let page = Page { limit: u32::MAX, with_payloads, ..Page::default() };
    let filter = Filter::task(id);
    let mut steps = select(&mut tx, &filter, &Lanes::Asked, &page, Table::Steps, None).await?;
    steps.extend(select(&mut tx, &filter, &Lanes::Asked, &page, Table::Done, None).await?);
    if steps.is_empty() {
        return Ok(None);
    }
    steps.sort_by_key(|step| step.id);
    let query = "select a.step, a.attempt, a.lease, a.outcome, holdoff.micros(a.started_at), a.took_us,
            coalesce(w.name, ''), a.class, a.message, a.delay_us
        from holdoff.attempts a left join holdoff.workers w on w.id = a.worker
        where a.task = $1 order by a.started_at, a.step, a.lease";
    let rows = sqlx::query(query).bind(id.as_uuid()).fetch_all(&mut *tx).await?;
    let attempts = rows.iter().map(|row| attempt(id, row)).collect::<std::result::Result<_, _>>()?;
    let query = "select parent, child from holdoff.edges where task = $1 order by parent, child";
    let edges = sqlx::query_as(query).bind(id.as_uuid()).fetch_all(&mut *tx).await?;
    let now = sqlx::query_scalar("select holdoff.micros(clock_timestamp())").fetch_one(&mut *tx).await?;
    let state = TaskState::of(steps.iter().map(|step| step.state));
    Ok(Some(TaskRecord { id, state, now: Moment(now), steps, attempts, edges }))
}

fn attempt(task: TaskId, row: &PgRow) -> std::result::Result<AttemptRecord, sqlx::Error> {
    Ok(reading::read_attempt!(task, row))
}

pub(super) async fn stats(pool: &PgPool, stale_after: Duration) -> Result<Vec<QueueStats>> {
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    think_freely(&mut tx).await?;
    let lanes = "select id, namespace, queue, operation, paused from holdoff.lanes";
    let lanes: Vec<LaneRow> = sqlx::query_as(lanes).fetch_all(&mut *tx).await?;
    let query = "select lane, state, count(*), count(*) filter (where due_at <= now.now),
            count(*) filter (where state in (1, 2) and created_at <= now.now - holdoff.span($1)),
            holdoff.micros(max(now.now)) - holdoff.micros(min(due_at))
        from holdoff.steps, (select clock_timestamp() as now) now group by lane, state";
    let groups: Vec<Group> = sqlx::query_as(query).bind(micros(stale_after)).fetch_all(&mut *tx).await?;
    let done = "select lane, count(*) from holdoff.done where state = 3 group by lane";
    let done: Vec<(i32, i64)> = sqlx::query_as(done).fetch_all(&mut *tx).await?;
    Ok(reading::stats(lanes, groups, done))
}
