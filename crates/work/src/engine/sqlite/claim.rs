//! Claims steps for workers.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::types::Uuid;
use sqlx::{Row, SqlitePool};

use super::Write;
use super::rows::{self, Rows, micros};
use crate::engine::reading;
use crate::payload::Format;
use crate::store::{Claimed, Result, Wants, WorkerId};
use crate::{Payload, StepId, TaskId};

/// Finds the lane of the most urgent due step with one index lookup at each lane's head.
pub(super) const HEAD: &str = "select l.id from (
        select l.id, l.priority, (
            select s.due_at from holdoff_steps s where s.lane = l.id and s.state = 1 and s.due_at <= ?5
            order by s.due_at limit 1
        ) as due_at
        from holdoff_lanes l
        where not l.paused
            and (?1 = '[]' or l.namespace in (select value from json_each(?1)))
            and (?2 = '[]' or l.queue in (select value from json_each(?2)))
            and ((l.kind = 0 and l.operation in (select value from json_each(?3))) or (l.kind = 1 and ?4))
    ) l
    where l.due_at is not null order by l.priority, l.due_at limit 1";

pub(super) const CLAIM: &str =
    "update holdoff_steps as s set state = 2, lease = s.lease + 1, worker = ?2, claimed_at = ?3,
        first_at = iif(s.failures = 0, ?3, coalesce(s.first_at, ?3)), due_at = ?3 + ?4
    where (s.task, s.step) in (
        select c.task, c.step from holdoff_steps c where c.lane = ?1 and c.state = 1 and c.due_at <= ?3
        order by c.due_at limit ?5
    )
    returning task, step, lane, policy, lease, failures, last_delay_us, ?3 - first_at, refreshed, parents > 0,
        children > 0, trace, format, payload, null, destination";

async fn head<'c>(connection: impl sqlx::SqliteExecutor<'c>, wants: &Wants, now: i64) -> Result<Option<i32>> {
    let list = |names: &[String]| serde_json::to_string(names).unwrap_or_else(|_| String::from("[]"));
    let head = sqlx::query_scalar(HEAD)
        .bind(list(&wants.namespaces))
        .bind(list(&wants.queues))
        .bind(list(&wants.operations))
        .bind(wants.http)
        .bind(now);
    Ok(head.fetch_optional(connection).await?)
}

pub(super) async fn is_due(readers: &SqlitePool, wants: &Wants, now: i64) -> Result<bool> {
    Ok(head(readers, wants, now).await?.is_some())
}

pub(super) async fn claim(
    mut write: Write,
    wants: &Wants,
    worker: WorkerId,
    limit: i64,
    lease: Duration,
) -> Result<Vec<Claimed>> {
    let Some(lane) = head(&mut *write.tx, wants, write.now).await? else { return Ok(Vec::new()) };
    let rows = sqlx::query(CLAIM)
        .bind(lane)
        .bind(worker)
        .bind(write.now)
        .bind(micros(lease))
        .bind(limit)
        .fetch_all(&mut *write.tx)
        .await?;
    write.tx.commit().await?;
    rows.iter().map(|row| Ok(claimed(row)?)).collect()
}

fn claimed(row: &SqliteRow) -> std::result::Result<Claimed, sqlx::Error> {
    Ok(reading::read_claim!(row))
}

/// A child, and the name and output of its parent.
type InputRow = (Uuid, i32, String, i16, Option<Vec<u8>>);

pub(super) async fn inputs(readers: &SqlitePool, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>> {
    let query = "select e.task, e.child, coalesce(d.name, cast(d.step as text)), d.format, d.output
        from json_each(?1) x
        cross join holdoff_edges e on e.task = unhex(x.value ->> 0) and e.child = x.value ->> 1
        cross join holdoff_done d on d.task = e.task and d.step = e.parent";
    let rows: Vec<InputRow> = sqlx::query_as(query).bind(rows::steps(steps)).fetch_all(readers).await?;
    let input = |(task, child, name, format, bytes): InputRow| {
        let output = Payload { format: Format::of_code(format), bytes: bytes.unwrap_or_default().into() };
        (step_id(task, child), name, output)
    };
    Ok(rows.into_iter().map(input).collect())
}

pub(super) async fn renew(mut write: Write, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>> {
    let mut rows = Rows::new();
    for (step, lease) in held {
        rows.step(*step).number(*lease);
    }
    let update = "update holdoff_steps as s set due_at = ?2
        from (select unhex(value ->> 0) as task, value ->> 1 as step, value ->> 2 as lease from json_each(?1)) x
        where s.task = x.task and s.step = x.step and s.lease = x.lease and s.state = 2
        returning task, step";
    let renewed: Vec<(Uuid, i32)> = sqlx::query_as(update)
        .bind(rows.finish())
        .bind(write.now.saturating_add(micros(lease)))
        .fetch_all(&mut *write.tx)
        .await?;
    write.tx.commit().await?;
    let renewed: HashSet<StepId> = renewed.into_iter().map(|(task, step)| step_id(task, step)).collect();
    Ok(held.iter().map(|(step, _)| renewed.contains(step)).collect())
}

/// Returns the step if it is held under this lease, and the time since it was claimed.
pub(super) async fn held(
    readers: &SqlitePool,
    now: i64,
    step: StepId,
    lease: i64,
) -> Result<Option<(Claimed, Duration)>> {
    let query =
        "select task, step, lane, policy, lease, failures, last_delay_us, claimed_at - first_at, refreshed,
            parents > 0, children > 0, trace, format, null, null, destination, max(0, ?4 - claimed_at)
        from holdoff_steps where task = ?1 and step = ?2 and lease = ?3 and state = 2";
    let row = sqlx::query(query).bind(step.task.as_uuid()).bind(step.number).bind(lease).bind(now);
    Ok(row.fetch_optional(readers).await?.as_ref().map(holder).transpose()?)
}

fn holder(row: &SqliteRow) -> std::result::Result<(Claimed, Duration), sqlx::Error> {
    Ok(reading::read_held!(row))
}

pub(super) fn step_id(task: Uuid, step: i32) -> StepId {
    TaskId::from_uuid(task).step(step)
}
