//! Taking reports in.

use std::collections::{HashMap, HashSet};

use sqlx::types::Uuid;
use sqlx::{PgConnection, PgPool};

use super::claim::{columns, step_id};
use super::submit::{micros, submit};
use crate::engine::exits::{self, Change};
use crate::store::{Ended, Receipt, Report, Result, Tell};
use crate::{Payload, StepId, StepState};

pub(super) async fn finish(pool: &PgPool, reports: &[Report], tell: Tell<'_>) -> Result<Vec<Receipt>> {
    let (successes, changes) = exits::sort(reports);
    let parents: Vec<StepId> =
        successes.iter().filter(|(report, _)| report.has_children).map(|(report, _)| report.step).collect();
    let accepted = if changes.is_empty() && parents.is_empty() {
        // One statement is a transaction of its own.
        succeed(&mut *pool.acquire().await?, &successes).await?
    } else {
        let mut tx = pool.begin().await?;
        let mut accepted = succeed(&mut tx, &successes).await?;
        let finished: Vec<StepId> = parents.into_iter().filter(|step| accepted.contains(step)).collect();
        unblock(&mut tx, &finished).await?;
        accepted.extend(change(&mut tx, &changes, tell).await?);
        tx.commit().await?;
        accepted
    };
    receipts(pool, reports, &accepted).await
}

/// Moves finished steps into the history.
pub(crate) async fn succeed(
    tx: &mut PgConnection,
    successes: &[(&Report, &Payload)],
) -> Result<HashSet<StepId>> {
    if successes.is_empty() {
        return Ok(HashSet::new());
    }
    let steps: Vec<StepId> = successes.iter().map(|(report, _)| report.step).collect();
    let (tasks, numbers) = columns(&steps);
    let leases: Vec<i64> = successes.iter().map(|(report, _)| report.lease).collect();
    let took: Vec<i64> = successes.iter().map(|(report, _)| micros(report.took)).collect();
    let formats: Vec<i16> = successes.iter().map(|(_, output)| output.format.code()).collect();
    let outputs: Vec<Option<&[u8]>> = successes
        .iter()
        .map(|(_, output)| Some(&output.bytes[..]).filter(|bytes| !bytes.is_empty()))
        .collect();
    let statement = "with r as (
            select * from unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bytea[])
                as r(task, step, lease, took_us, format, output)
        ), gone as (
            delete from holdoff.steps s using r where s.task = r.task and s.step = r.step and s.lease = r.lease
            returning s.task, s.step, s.lane, s.policy, s.worker, s.lease, s.created_at, s.claimed_at, s.failures,
                s.rescues, s.snoozes, s.name, s.destination, r.took_us, r.format, r.output
        )
        insert into holdoff.done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
            ended_at, took_us, failures, rescues, snoozes, name, destination, output)
        select task, step, lane, policy, 3, format, worker, lease, created_at, claimed_at, clock_timestamp(), took_us,
            failures, rescues, snoozes, name, destination, output from gone
        returning task, step";
    let rows: Vec<(Uuid, i32)> = sqlx::query_as(statement)
        .bind(tasks)
        .bind(numbers)
        .bind(leases)
        .bind(took)
        .bind(formats)
        .bind(outputs)
        .fetch_all(tx)
        .await?;
    Ok(rows.into_iter().map(|(task, step)| step_id(task, step)).collect())
}

/// Tells the children of these steps that a parent is done. Parents are counted per child, and children locked in
/// their order, so that any number of parents may finish at once, in any batches.
pub(crate) async fn unblock(tx: &mut PgConnection, parents: &[StepId]) -> Result<()> {
    if parents.is_empty() {
        return Ok(());
    }
    let (tasks, numbers) = columns(parents);
    let lock = "select from holdoff.steps s
        join (
            select distinct e.task, e.child from unnest($1::uuid[], $2::int[]) as x(task, step)
            join holdoff.edges e on e.task = x.task and e.parent = x.step
        ) k on s.task = k.task and s.step = k.child
        order by s.task, s.step for update of s";
    sqlx::query(lock).bind(&tasks).bind(&numbers).execute(&mut *tx).await?;
    let update = "update holdoff.steps s set waiting = s.waiting - k.finished,
            state = case when s.state = 0 and s.waiting = k.finished then 1 else s.state end,
            due_at = case when s.waiting = k.finished then clock_timestamp() + holdoff.span(s.delay_us)
                else s.due_at end
        from (
            select e.task, e.child, count(*)::int as finished from unnest($1::uuid[], $2::int[]) as x(task, step)
            join holdoff.edges e on e.task = x.task and e.parent = x.step group by e.task, e.child
        ) k
        where s.task = k.task and s.step = k.child";
    sqlx::query(update).bind(&tasks).bind(&numbers).execute(&mut *tx).await?;
    sqlx::query("select pg_notify('holdoff', '')").execute(tx).await?;
    Ok(())
}

/// Requeues, fails or hands off, and writes the attempt down.
async fn change(tx: &mut PgConnection, changes: &[Change<'_>], tell: Tell<'_>) -> Result<Vec<StepId>> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let steps: Vec<StepId> = changes.iter().map(|change| change.report.step).collect();
    let (tasks, numbers) = columns(&steps);
    let leases: Vec<i64> = changes.iter().map(|change| change.report.lease).collect();
    let statement = "with r as (
            select * from unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::smallint[], $6::smallint[],
                $7::bigint[], $8::bool[], $9::bool[], $10::text[], $11::text[])
                as r(task, step, lease, took_us, state, outcome, delay_us, is_failure, refreshed, class, message)
        ), changed as (
            update holdoff.steps s set state = r.state, lease = s.lease + 1,
                due_at = clock_timestamp() + holdoff.span(coalesce(r.delay_us, 0)),
                ended_at = case when r.state = 1 then null else clock_timestamp() end,
                failures = s.failures + r.is_failure::int,
                snoozes = s.snoozes + (not r.is_failure)::int,
                last_delay_us = case when r.is_failure then coalesce(r.delay_us, 0) else s.last_delay_us end,
                refreshed = s.refreshed or r.refreshed,
                class = coalesce(r.class, s.class),
                message = case when r.is_failure then r.message else s.message end
            from r where s.task = r.task and s.step = r.step and s.lease = r.lease
            returning s.task, s.step, r.lease, s.failures, r.outcome, s.worker, s.claimed_at, r.took_us, r.delay_us,
                r.class, r.message, s.lane
        )
        , logged as (
            insert into holdoff.attempts (task, step, lease, attempt, outcome, worker, started_at, took_us, delay_us,
                class, message)
            select task, step, lease, failures, outcome, worker, coalesce(claimed_at, clock_timestamp()), took_us,
                delay_us, class, message from changed
        )
        select task, step, lane, failures from changed";
    let rows: Vec<(Uuid, i32, i32, i32)> = sqlx::query_as(statement)
        .bind(&tasks)
        .bind(&numbers)
        .bind(&leases)
        .bind(changes.iter().map(|change| micros(change.report.took)).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.state.code()).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.outcome.code()).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.delay.map(micros)).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.is_failure).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.refreshed).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.class).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.message).collect::<Vec<_>>())
        .fetch_all(&mut *tx)
        .await?;
    let by_step: HashMap<StepId, &Change<'_>> =
        changes.iter().map(|change| (change.report.step, change)).collect();
    let mut messages = Vec::new();
    for (task, step, lane, failures) in &rows {
        let step = step_id(*task, *step);
        let Some(change) = by_step.get(&step).filter(|change| change.state != StepState::Ready) else {
            continue;
        };
        messages.extend(tell(&Ended {
            step,
            lane: *lane,
            state: change.state,
            attempts: *failures,
            class: change.class.unwrap_or_default().to_owned(),
            message: change.message.to_owned(),
        }));
    }
    submit(tx, &messages, false).await?;
    if changes.iter().any(|change| change.report.lease > exits::KEPT_LEASES) {
        let forget = "delete from holdoff.attempts a using unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease)
            where a.task = x.task and a.step = x.step and a.lease < x.lease - $4";
        sqlx::query(forget)
            .bind(&tasks)
            .bind(&numbers)
            .bind(&leases)
            .bind(exits::KEPT_LEASES)
            .execute(tx)
            .await?;
    }
    Ok(rows.into_iter().map(|(task, step, ..)| step_id(task, step)).collect())
}

/// A receipt for each report; what was not accepted is looked up, for it may have been reported before.
async fn receipts(pool: &PgPool, reports: &[Report], accepted: &HashSet<StepId>) -> Result<Vec<Receipt>> {
    let refused: Vec<&Report> = reports.iter().filter(|report| !accepted.contains(&report.step)).collect();
    let mut recorded = HashMap::new();
    if !refused.is_empty() {
        let steps: Vec<StepId> = refused.iter().map(|report| report.step).collect();
        let leases: Vec<i64> = refused.iter().map(|report| report.lease).collect();
        let (tasks, numbers) = columns(&steps);
        let query = "with x as (select * from unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease))
            select task, step, a.outcome from x join holdoff.attempts a using (task, step, lease)
            union all
            select task, step, 0::smallint from x join holdoff.done d using (task, step, lease) where d.state = 3";
        let rows: Vec<(Uuid, i32, i16)> =
            sqlx::query_as(query).bind(tasks).bind(numbers).bind(leases).fetch_all(pool).await?;
        recorded.extend(rows.into_iter().map(|(task, step, outcome)| (step_id(task, step), outcome)));
    }
    let receipt = |report: &Report| match recorded.get(&report.step) {
        _ if accepted.contains(&report.step) => Receipt::Accepted,
        Some(outcome) => exits::receipt(*outcome),
        None => Receipt::Fenced,
    };
    Ok(reports.iter().map(receipt).collect())
}
