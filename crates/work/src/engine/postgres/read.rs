//! Looking at tasks and steps.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder, Row};

use super::select::{Table, push_where};
use super::submit::micros;
use crate::engine::reading::{self, Group, LaneRow};
use crate::filter::{Filter, Page};
use crate::record::{AttemptRecord, Moment, QueueStats, StepRecord, TaskRecord};
use crate::store::Result;
use crate::{StepState, TaskId, TaskState};

/// People's questions are not the hot path: here the planner may do what it likes.
pub(super) async fn think_freely(tx: &mut PgConnection) -> Result<()> {
    let settings =
        "set local enable_seqscan = on; set local enable_hashjoin = on; set local enable_mergejoin = on";
    sqlx::raw_sql(settings).execute(tx).await?;
    Ok(())
}

pub(super) async fn task(pool: &PgPool, id: TaskId, with_payloads: bool) -> Result<Option<TaskRecord>> {
    // One moment for both tables: a step that finishes meanwhile is in one of them.
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    let page = Page { limit: u32::MAX, after: None, with_payloads };
    let filter = Filter::task(id);
    let mut steps = select(&mut tx, &filter, &page, Table::Steps).await?;
    steps.extend(select(&mut tx, &filter, &page, Table::Done).await?);
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
    let now = sqlx::query_scalar("select holdoff.micros(clock_timestamp())").fetch_one(&mut *tx).await?;
    let state = TaskState::of(steps.iter().map(|step| step.state));
    Ok(Some(TaskRecord { id, state, now: Moment(now), steps, attempts }))
}

fn attempt(task: TaskId, row: &PgRow) -> std::result::Result<AttemptRecord, sqlx::Error> {
    Ok(reading::read_attempt!(task, row))
}

pub(super) async fn list(pool: &PgPool, filter: &Filter, page: &Page) -> Result<Vec<StepRecord>> {
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    think_freely(&mut tx).await?;
    let mut steps = select(&mut tx, filter, page, Table::Steps).await?;
    if StepState::OVER.into_iter().any(|state| filter.admits(state)) {
        steps.extend(select(&mut tx, filter, page, Table::Done).await?);
    }
    steps.sort_by_key(|step| std::cmp::Reverse(step.id));
    steps.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
    Ok(steps)
}

async fn select(
    tx: &mut PgConnection,
    filter: &Filter,
    page: &Page,
    table: Table,
) -> Result<Vec<StepRecord>> {
    let mut query = QueryBuilder::<Postgres>::new(
        "select s.task, s.step, s.name, s.state, l.namespace, l.queue, l.operation, p.name, l.priority, s.destination,
            s.failures, s.rescues, s.snoozes, holdoff.micros(s.created_at), holdoff.micros(s.claimed_at),
            holdoff.micros(s.ended_at), s.class, s.message, s.format, ",
    );
    query.push(match table {
        Table::Steps => {
            "s.waiting, holdoff.micros(case when s.state = 2 then s.leased_until else s.due_at end), "
        }
        Table::Done => "0, null::bigint, ",
    });
    query.push(match table {
        _ if !page.with_payloads => "null::bytea",
        Table::Steps => "s.payload",
        Table::Done => "s.output",
    });
    query.push(", s.lease");
    query.push(" from ").push(table.name()).push(" s join holdoff.lanes l on l.id = s.lane");
    query.push(" left join holdoff.policies p on p.id = s.policy");
    push_where(&mut query, filter, table);
    if let Some(after) = page.after {
        query.push(" and (s.task, s.step) < (").push_bind(after.task.as_uuid()).push(", ");
        query.push_bind(after.number).push(")");
    }
    query.push(" order by s.task desc, s.step desc limit ").push_bind(i64::from(page.limit));
    let rows = query.build().fetch_all(tx).await?;
    rows.iter().map(|row| Ok(step(row, table, page.with_payloads)?)).collect()
}

fn step(row: &PgRow, table: Table, with_payloads: bool) -> std::result::Result<StepRecord, sqlx::Error> {
    Ok(reading::read_step!(row, is_over: table == Table::Done, with_payload: with_payloads))
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
