//! Claims steps for workers.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use sqlx::{PgPool, Row};

use super::submit::micros;
use crate::engine::reading;
use crate::payload::Format;
use crate::store::{Claimed, Result, Wants, WorkerId};
use crate::{Payload, StepId, TaskId};

/// The claim. It finds the lane of the most urgent due step with one index lookup at each lane's head. It then locks
/// steps of that lane, oldest first, and skips those that are claimed or locked. `(select clock_timestamp())` is
/// evaluated once, so that the index scan has an upper bound.
///
/// A claimed step keeps its position in the index, and the claim changes no indexed column: the new version of the row
/// stays on its page and needs no index entries, which nearly doubles the rate. Only steps that are being processed
/// precede the first free step of a lane, so skipping them is cheap. A step whose lease is renewed leaves this part of
/// the index.
macro_rules! claim {
    ($head:literal) => {
        concat!("with head as (
        select l.id from holdoff.lanes l cross join lateral (
            select s.due_at from holdoff.steps s
            where s.lane = l.id and s.line = 1 and s.state = 1 and s.due_at <= (select clock_timestamp())
            order by s.due_at limit 1", $head, "
        ) h
        where not l.paused
            and (cardinality($1::text[]) = 0 or l.namespace = any($1))
            and (cardinality($2::text[]) = 0 or l.queue = any($2))
            and ((l.kind = 0 and l.operation = any($3::text[])) or (l.kind = 1 and $4))
        order by l.priority, h.due_at limit 1
    )
    update holdoff.steps s set state = 2, lease = s.lease + 1, worker = $5, claimed_at = clock_timestamp(),
        first_at = case when s.failures = 0 or s.first_at is null then clock_timestamp() else s.first_at end,
        leased_until = clock_timestamp() + holdoff.span($7)
    where s.ctid = any(array(
        select c.ctid from holdoff.steps c
        where c.lane = (select id from head) and c.line = 1 and c.state = 1 and c.due_at <= (select clock_timestamp())
        order by c.due_at limit $6 for update skip locked
    ))
    returning s.task, s.step, s.lane, s.policy, s.lease, s.failures, s.last_delay_us,
        case when s.failures = 0 then 0 else holdoff.micros(clock_timestamp()) - holdoff.micros(s.first_at) end,
        s.refreshed, s.parents > 0, s.children > 0, s.trace, s.format, s.payload, s.ctid::text,
        s.destination")
    };
}

const CLAIM: &str = claim!("");

/// The same claim, which also skips lanes whose due steps are all locked. A transaction that keeps a step locked, for
/// however long, does not block claims in other lanes. This statement locks every lane's head, so it runs second.
const CLAIM_BEYOND_LOCKS: &str = claim!(" for update skip locked");

pub(super) async fn claim(
    pool: &PgPool,
    wants: &Wants,
    worker: WorkerId,
    limit: i64,
    lease: Duration,
) -> Result<Vec<Claimed>> {
    let mut rows = Vec::new();
    for statement in [CLAIM, CLAIM_BEYOND_LOCKS] {
        if rows.is_empty() {
            rows = sqlx::query(statement)
                .bind(&wants.namespaces)
                .bind(&wants.queues)
                .bind(&wants.operations)
                .bind(wants.http)
                .bind(worker)
                .bind(limit)
                .bind(micros(lease))
                .fetch_all(pool)
                .await?;
        }
    }
    rows.iter().map(|row| Ok(claimed(row)?)).collect()
}

fn claimed(row: &PgRow) -> std::result::Result<Claimed, sqlx::Error> {
    Ok(reading::read_claim!(row))
}

/// A child, and the name and output of its parent.
type InputRow = (Uuid, i32, String, i16, Option<Vec<u8>>);

pub(super) async fn inputs(pool: &PgPool, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>> {
    let (tasks, numbers) = columns(steps);
    let query = "select e.task, e.child, coalesce(d.name, d.step::text), d.format, d.output
        from unnest($1::uuid[], $2::int[]) as x(task, step)
        join holdoff.edges e on e.task = x.task and e.child = x.step
        join holdoff.done d on d.task = e.task and d.step = e.parent";
    let rows: Vec<InputRow> = sqlx::query_as(query).bind(tasks).bind(numbers).fetch_all(pool).await?;
    let input = |(task, child, name, format, bytes): InputRow| {
        let output = Payload { format: Format::of_code(format), bytes: bytes.unwrap_or_default().into() };
        (step_id(task, child), name, output)
    };
    Ok(rows.into_iter().map(input).collect())
}

pub(super) async fn renew(pool: &PgPool, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>> {
    let steps: Vec<StepId> = held.iter().map(|(step, _)| *step).collect();
    let leases: Vec<i64> = held.iter().map(|(_, lease)| *lease).collect();
    let (tasks, numbers) = columns(&steps);
    let update = "update holdoff.steps s set line = 3, due_at = clock_timestamp() + holdoff.span($4),
            leased_until = clock_timestamp() + holdoff.span($4)
        from unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease)
        where s.task = x.task and s.step = x.step and s.lease = x.lease and s.state = 2
        returning s.task, s.step";
    let renewed: Vec<(Uuid, i32)> = sqlx::query_as(update)
        .bind(tasks)
        .bind(numbers)
        .bind(leases)
        .bind(micros(lease))
        .fetch_all(pool)
        .await?;
    let renewed: std::collections::HashSet<StepId> =
        renewed.into_iter().map(|(task, step)| step_id(task, step)).collect();
    Ok(steps.iter().map(|step| renewed.contains(step)).collect())
}

/// Returns the step if it is held under this lease, and the time since it was claimed.
pub(super) async fn held(pool: &PgPool, step: StepId, lease: i64) -> Result<Option<(Claimed, Duration)>> {
    let query = "select s.task, s.step, s.lane, s.policy, s.lease, s.failures, s.last_delay_us,
            case when s.failures = 0 then 0 else holdoff.micros(s.claimed_at) - holdoff.micros(s.first_at) end,
            s.refreshed, s.parents > 0, s.children > 0, s.trace, s.format, null::bytea, null::text,
            s.destination,
            holdoff.micros(clock_timestamp()) - holdoff.micros(s.claimed_at)
        from holdoff.steps s where s.task = $1 and s.step = $2 and s.lease = $3 and s.state = 2";
    let row = sqlx::query(query).bind(step.task.as_uuid()).bind(step.number).bind(lease).fetch_optional(pool);
    Ok(row.await?.as_ref().map(holder).transpose()?)
}

fn holder(row: &PgRow) -> std::result::Result<(Claimed, Duration), sqlx::Error> {
    Ok(reading::read_held!(row))
}

pub(super) fn step_id(task: Uuid, step: i32) -> StepId {
    TaskId::from_uuid(task).step(step)
}

pub(super) fn columns(steps: &[StepId]) -> (Vec<Uuid>, Vec<i32>) {
    steps.iter().map(|step| (step.task.as_uuid(), step.number)).unzip()
}
