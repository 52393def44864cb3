//! Processes reports.

use std::collections::{HashMap, HashSet};

use sqlx::types::Uuid;
use sqlx::{PgConnection, PgPool};

use super::claim::{columns, step_id};
use super::submit::{micros, submit};
use crate::engine::exits::{self, Change};
use crate::store::{Receipt, Report, Result, Tell};
use crate::{Payload, StepId};

pub(super) async fn finish(pool: &PgPool, reports: &[Report], tell: Tell<'_>) -> Result<Vec<Receipt>> {
    let (successes, changes) = exits::sort(reports);
    let parents: Vec<StepId> =
        successes.iter().filter(|(report, _)| report.has_children).map(|(report, _)| report.step).collect();
    let accepted = if changes.is_empty() && parents.is_empty() {
        // A single statement is a transaction of its own.
        let mut connection = pool.acquire().await?;
        let gone = succeed_on_the_spot(&mut connection, &successes).await?;
        if gone.len() == reports.len() {
            return Ok(vec![Receipt::Accepted; reports.len()]);
        }
        succeed_the_rest(&mut connection, &successes, gone).await?
    } else {
        let mut tx = pool.begin().await?;
        if !successes.is_empty() && !changes.is_empty() {
            lock(&mut tx, reports).await?;
        }
        let mut accepted = succeed(&mut tx, &successes).await?;
        let finished: Vec<StepId> = parents.into_iter().filter(|step| accepted.contains(step)).collect();
        unblock(&mut tx, &finished).await?;
        accepted.extend(change(&mut tx, &changes, tell).await?);
        tx.commit().await?;
        accepted
    };
    if accepted.len() == reports.len() {
        return Ok(vec![Receipt::Accepted; reports.len()]);
    }
    receipts(pool, reports, &exits::accepted(reports, &accepted)).await
}

/// Locks the rows that two statements are about to change, in the order of the steps. The worker's own renewals lock
/// them in the same order.
async fn lock(tx: &mut PgConnection, reports: &[Report]) -> Result<()> {
    let steps: Vec<StepId> = reports.iter().map(|report| report.step).collect();
    let leases: Vec<i64> = reports.iter().map(|report| report.lease).collect();
    let (tasks, numbers) = columns(&steps);
    let lock =
        "select from holdoff.steps s join unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease)
            on s.task = x.task and s.step = x.step and s.lease = x.lease
        order by s.task, s.step for update of s";
    sqlx::query(lock).bind(tasks).bind(numbers).bind(leases).execute(tx).await?;
    Ok(())
}

/// Moves succeeded steps into the history.
pub(crate) async fn succeed(
    tx: &mut PgConnection,
    successes: &[(&Report, &Payload)],
) -> Result<HashSet<StepId>> {
    let gone = succeed_on_the_spot(&mut *tx, successes).await?;
    succeed_the_rest(tx, successes, gone).await
}

/// Moves the steps that have an output, and those whose row has moved since the claim because their lease was renewed.
async fn succeed_the_rest(
    tx: &mut PgConnection,
    successes: &[(&Report, &Payload)],
    gone: Vec<StepId>,
) -> Result<HashSet<StepId>> {
    let mut gone: HashSet<StepId> = gone.into_iter().collect();
    let is_left = |(report, _): &&(&Report, &Payload)| !gone.contains(&report.step);
    let left: Vec<(&Report, &Payload)> = successes.iter().filter(is_left).copied().collect();
    gone.extend(succeed_by_key(tx, &left).await?);
    Ok(gone)
}

/// Moves steps without an output whose row is still where it was claimed. These rows are found without an index.
///
/// The key and the lease are compared as well, because another row may be at that position by now. `is true` makes this
/// comparison a hash lookup, where a join would compare every row with every report.
async fn succeed_on_the_spot(
    tx: &mut PgConnection,
    successes: &[(&Report, &Payload)],
) -> Result<Vec<StepId>> {
    let is_plain =
        |(report, output): &&(&Report, &Payload)| report.whereabouts.is_some() && output.bytes.is_empty();
    let reports: Vec<&Report> = successes.iter().filter(is_plain).map(|(report, _)| *report).collect();
    if reports.is_empty() {
        return Ok(Vec::new());
    }
    let steps: Vec<StepId> = reports.iter().map(|report| report.step).collect();
    let (tasks, numbers) = columns(&steps);
    let leases: Vec<i64> = reports.iter().map(|report| report.lease).collect();
    let places: Vec<&str> = reports.iter().filter_map(|report| report.whereabouts.as_deref()).collect();
    let statement = "with gone as (
            delete from holdoff.steps s
            where s.ctid = any($1::text[]::tid[]) and s.state = 2
                and ((s.task, s.step, s.lease) in (select * from unnest($2::uuid[], $3::int[], $4::bigint[]))) is true
            returning s.task, s.step, s.lane, s.policy, s.worker, s.lease, s.created_at, s.claimed_at, s.failures,
                s.rescues, s.snoozes, s.name, s.destination
        ), kept as (
            insert into holdoff.done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
                ended_at, took_us, failures, rescues, snoozes, name, destination)
            select task, step, lane, policy, 3, 0, worker, lease, created_at, claimed_at, clock_timestamp(),
                (date_part('epoch', clock_timestamp() - claimed_at) * 1e6)::bigint, failures, rescues, snoozes, name,
                destination
            from gone
            returning task, step
        )
        select coalesce(array_agg(task), '{}'), coalesce(array_agg(step), '{}') from kept";
    let query = sqlx::query_as(statement).bind(places).bind(tasks).bind(numbers).bind(leases);
    Ok(step_ids(query.fetch_one(tx).await?))
}

/// Moves steps that it finds by their key.
async fn succeed_by_key(tx: &mut PgConnection, successes: &[(&Report, &Payload)]) -> Result<Vec<StepId>> {
    if successes.is_empty() {
        return Ok(Vec::new());
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
            delete from holdoff.steps s using r
            where s.task = r.task and s.step = r.step and s.lease = r.lease and s.state = 2
            returning s.task, s.step, s.lane, s.policy, s.worker, s.lease, s.created_at, s.claimed_at, s.failures,
                s.rescues, s.snoozes, s.name, s.destination, r.took_us, r.format, r.output
        ), kept as (
            insert into holdoff.done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
                ended_at, took_us, failures, rescues, snoozes, name, destination, output)
            select task, step, lane, policy, 3, format, worker, lease, created_at, claimed_at, clock_timestamp(),
                took_us, failures, rescues, snoozes, name, destination, output
            from gone
            returning task, step
        )
        select coalesce(array_agg(task), '{}'), coalesce(array_agg(step), '{}') from kept";
    let query = sqlx::query_as(statement).bind(tasks).bind(numbers).bind(leases).bind(took).bind(formats);
    Ok(step_ids(query.bind(outputs).fetch_one(tx).await?))
}

fn step_ids((tasks, numbers): (Vec<Uuid>, Vec<i32>)) -> Vec<StepId> {
    tasks.into_iter().zip(numbers).map(|(task, step)| step_id(task, step)).collect()
}

/// Unblocks the children of these finished steps. Finished parents are counted per child, and children are locked in
/// order, so that any number of parents may finish at once, in any batches.
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
            line = case when s.state = 0 and s.waiting = k.finished then 1 else s.line end,
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

/// Requeues or fails steps, or marks them as conflicted, and records the attempts.
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
            update holdoff.steps s set state = r.state, line = case when r.state = 1 then 1 else 2 end, lease = s.lease + 1,
                leased_until = null,
                due_at = clock_timestamp() + holdoff.span(coalesce(r.delay_us, 0)),
                ended_at = case when r.state = 1 then null else clock_timestamp() end,
                failures = s.failures + r.is_failure::int,
                snoozes = s.snoozes + (not r.is_failure)::int,
                last_delay_us = case when r.is_failure then coalesce(r.delay_us, 0) else s.last_delay_us end,
                refreshed = s.refreshed or r.refreshed,
                class = coalesce(r.class, s.class),
                message = case when r.is_failure then r.message else s.message end
            from r where s.task = r.task and s.step = r.step and s.lease = r.lease and s.state = 2
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
    let changed: Vec<exits::Changed> =
        rows.into_iter().map(|(task, step, lane, failures)| (step_id(task, step), lane, failures)).collect();
    let messages = exits::tell_of_changes(changes, &changed, tell);
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
    Ok(changed.into_iter().map(|(step, ..)| step).collect())
}

/// Returns a receipt for each report. A report that was not accepted is looked up, because it may be a duplicate.
async fn receipts(
    pool: &PgPool,
    reports: &[Report],
    accepted: &HashSet<(StepId, i64)>,
) -> Result<Vec<Receipt>> {
    let refused: Vec<&Report> =
        reports.iter().filter(|report| !accepted.contains(&(report.step, report.lease))).collect();
    let mut recorded = HashMap::new();
    if !refused.is_empty() {
        let steps: Vec<StepId> = refused.iter().map(|report| report.step).collect();
        let leases: Vec<i64> = refused.iter().map(|report| report.lease).collect();
        let (tasks, numbers) = columns(&steps);
        let query = "with x as (select * from unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease))
            select task, step, lease, a.outcome from x join holdoff.attempts a using (task, step, lease)
            union all
            select task, step, lease, 0::smallint from x join holdoff.done d using (task, step, lease) where d.state = 3";
        let rows: Vec<(Uuid, i32, i64, i16)> =
            sqlx::query_as(query).bind(tasks).bind(numbers).bind(leases).fetch_all(pool).await?;
        recorded.extend(
            rows.into_iter().map(|(task, step, lease, outcome)| ((step_id(task, step), lease), outcome)),
        );
    }
    let receipt = |report: &Report| match recorded.get(&(report.step, report.lease)) {
        _ if accepted.contains(&(report.step, report.lease)) => Receipt::Accepted,
        Some(outcome) => exits::receipt(*outcome),
        None => Receipt::Fenced,
    };
    Ok(reports.iter().map(receipt).collect())
}
