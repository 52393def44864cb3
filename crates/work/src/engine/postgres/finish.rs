//! The statements that process reports.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use holdoff_policy::as_micros_i64;
use holdoff_sql::postgres::{Pool, Session};
use sqlx::types::Uuid;

use super::{key_arrays, submit};
use crate::StepId;
use crate::engine::columns::{ChangedColumns, RecordedColumns, StepKeyColumns, duration, list};
use crate::engine::exits;
use crate::engine::sql::sql;
use crate::record::{DelaySource, FailureReason};
use crate::store::{Exit, NotifyFn, Receipt, Report, Result, StepOutput};

/// Locks the rows that two statements are about to change, in the order of the steps. The worker's own renewals lock
/// them in the same order.
pub(super) async fn lock(tx: &mut Session<'_>, reports: &[Report]) -> Result<()> {
    let steps: Vec<StepId> = reports.iter().map(|report| report.step).collect();
    let leases: Vec<i64> = reports.iter().map(|report| report.lease).collect();
    let (tasks, numbers) = key_arrays(&steps);
    let lock =
        "select from holdoff.steps s join unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease)
            on s.task = x.task and s.step = x.step and s.lease = x.lease
        order by s.task, s.step for update of s";
    sqlx::query(lock).bind(tasks).bind(numbers).bind(leases).execute(tx).await?;
    Ok(())
}

/// Moves succeeded steps into the history.
pub(crate) async fn succeed(
    tx: &mut Session<'_>,
    successes: &[(&Report, &StepOutput)],
) -> Result<HashSet<StepId>> {
    let gone = succeed_in_place(&mut *tx, successes).await?;
    succeed_remaining(tx, successes, gone).await
}

/// Moves the steps that have an output, and those whose row has moved since the claim because their lease was renewed.
pub(super) async fn succeed_remaining(
    tx: &mut Session<'_>,
    successes: &[(&Report, &StepOutput)],
    gone: Vec<StepId>,
) -> Result<HashSet<StepId>> {
    let mut gone: HashSet<StepId> = gone.into_iter().collect();
    let is_left = |(report, _): &&(&Report, &StepOutput)| !gone.contains(&report.step);
    let left: Vec<(&Report, &StepOutput)> = successes.iter().filter(is_left).copied().collect();
    gone.extend(succeed_by_key(tx, &left).await?);
    Ok(gone)
}

/// Moves steps without an output whose row is still where it was claimed. These rows are found without an index.
///
/// The key and the lease are compared as well, because another row may be at that position by now. `is true` makes this
/// comparison a hash lookup, where a join would compare every row with every report.
pub(super) async fn succeed_in_place(
    tx: &mut Session<'_>,
    successes: &[(&Report, &StepOutput)],
) -> Result<Vec<StepId>> {
    let is_plain =
        |(report, output): &&(&Report, &StepOutput)| report.ctid_hint.is_some() && output.is_empty();
    let reports: Vec<&Report> = successes.iter().filter(is_plain).map(|(report, _)| *report).collect();
    if reports.is_empty() {
        return Ok(Vec::new());
    }
    let steps: Vec<StepId> = reports.iter().map(|report| report.step).collect();
    let (tasks, numbers) = key_arrays(&steps);
    let leases: Vec<i64> = reports.iter().map(|report| report.lease).collect();
    let ctids: Vec<&str> = reports.iter().filter_map(|report| report.ctid_hint.as_deref()).collect();
    let statement = sql!("with gone as (
            delete from holdoff.steps s
            where s.ctid = any($1::text[]::tid[]) and s.state = {running}
                and ((s.task, s.step, s.lease) in (select * from unnest($2::uuid[], $3::int[], $4::bigint[]))) is true
            returning s.task, s.step, s.lane, s.policy, s.worker, s.lease, s.created_at, s.claimed_at, s.failures,
                s.rescues, s.snoozes, s.name, s.destination
        ), kept as (
            insert into holdoff.done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
                ended_at, took_us, failures, rescues, snoozes, name, destination)
            select task, step, lane, policy, {succeeded}, {format.empty}, worker, lease, created_at, claimed_at, clock_timestamp(),
                (date_part('epoch', clock_timestamp() - claimed_at) * 1e6)::bigint, failures, rescues, snoozes, name,
                destination
            from gone
            returning task, step
        )
        select coalesce(array_agg(task), '{}'), coalesce(array_agg(step), '{}') from kept");
    let query = sqlx::query_as(statement).bind(ctids).bind(tasks).bind(numbers).bind(leases);
    Ok(step_ids(query.fetch_one(tx).await?))
}

/// Moves steps that it finds by their key.
async fn succeed_by_key(tx: &mut Session<'_>, successes: &[(&Report, &StepOutput)]) -> Result<Vec<StepId>> {
    if successes.is_empty() {
        return Ok(Vec::new());
    }
    let steps: Vec<StepId> = successes.iter().map(|(report, _)| report.step).collect();
    let (tasks, numbers) = key_arrays(&steps);
    let leases: Vec<i64> = successes.iter().map(|(report, _)| report.lease).collect();
    let took: Vec<i64> = successes.iter().map(|(report, _)| as_micros_i64(report.took)).collect();
    let formats: Vec<i16> = successes.iter().map(|(_, output)| output.payload.format.code()).collect();
    let outputs: Vec<Option<&[u8]>> = successes
        .iter()
        .map(|(_, output)| Some(&output.payload.bytes[..]).filter(|bytes| !bytes.is_empty()))
        .collect();
    let notes: Vec<&str> = successes.iter().map(|(_, output)| output.note.as_str()).collect();
    let statement = sql!("with r as (
            select * from unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bytea[], $7::text[])
                as r(task, step, lease, took_us, format, output, note)
        ), gone as (
            delete from holdoff.steps s using r
            where s.task = r.task and s.step = r.step and s.lease = r.lease and s.state = {running}
            returning s.task, s.step, s.lane, s.policy, s.worker, s.lease, s.created_at, s.claimed_at, s.failures,
                s.rescues, s.snoozes, s.name, s.destination, r.took_us, r.format, r.output, r.note
        ), kept as (
            insert into holdoff.done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
                ended_at, took_us, failures, rescues, snoozes, name, destination, output, message)
            select task, step, lane, policy, {succeeded}, format, worker, lease, created_at, claimed_at, clock_timestamp(),
                took_us, failures, rescues, snoozes, name, destination, output, nullif(note, '')
            from gone
            returning task, step
        )
        select coalesce(array_agg(task), '{}'), coalesce(array_agg(step), '{}') from kept");
    let query = sqlx::query_as(statement).bind(tasks).bind(numbers).bind(leases).bind(took).bind(formats);
    Ok(step_ids(query.bind(outputs).bind(notes).fetch_one(tx).await?))
}

fn step_ids((tasks, numbers): (Vec<Uuid>, Vec<i32>)) -> Vec<StepId> {
    tasks.into_iter().zip(numbers).map(|(task, step)| StepKeyColumns { task, step }.id()).collect()
}

/// Unblocks the children of these finished steps. Finished parents are counted per child, and children are locked in
/// order, so that any number of parents may finish at once, in any batches. Returns the delays of the children that are due
/// later. The caller notifies the workers after the commit.
pub(crate) async fn unblock(tx: &mut Session<'_>, parents: &[StepId]) -> Result<BTreeSet<Duration>> {
    if parents.is_empty() {
        return Ok(BTreeSet::new());
    }
    let (tasks, numbers) = key_arrays(parents);
    let lock = "select from holdoff.steps s
        join (
            select distinct e.task, e.child from unnest($1::uuid[], $2::int[]) as x(task, step)
            join holdoff.edges e on e.task = x.task and e.parent = x.step
        ) k on s.task = k.task and s.step = k.child
        order by s.task, s.step for update of s";
    sqlx::query(lock).bind(&tasks).bind(&numbers).execute(&mut *tx).await?;
    let update = sql!(
        "update holdoff.steps s set waiting = s.waiting - k.finished,
            state = case when s.state = {blocked} and s.waiting = k.finished then {ready} else s.state end,
            index_state = case when s.state = {blocked} and s.waiting = k.finished then {index.claimable}
                else s.index_state end,
            due_at = case when s.waiting = k.finished then clock_timestamp() + holdoff.span(s.delay_us)
                else s.due_at end
        from (
            select e.task, e.child, count(*)::int as finished from unnest($1::uuid[], $2::int[]) as x(task, step)
            join holdoff.edges e on e.task = x.task and e.parent = x.step group by e.task, e.child
        ) k
        where s.task = k.task and s.step = k.child
        returning case when s.state = {ready} then s.delay_us else 0 end"
    );
    let delays = sqlx::query_scalar(update).bind(&tasks).bind(&numbers).fetch_all(tx).await?;
    Ok(delays.into_iter().filter(|us| *us > 0).map(duration).collect())
}

/// Requeues or fails steps, or marks them as conflicted, and records the attempts. Returns the changed steps, and the
/// number of notification tasks.
pub(super) async fn change(
    tx: &mut Session<'_>,
    changes: &[&Report],
    notify: NotifyFn<'_>,
) -> Result<(Vec<StepId>, usize)> {
    if changes.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let steps: Vec<StepId> = changes.iter().map(|report| report.step).collect();
    let (tasks, numbers) = key_arrays(&steps);
    let leases: Vec<i64> = changes.iter().map(|report| report.lease).collect();
    let statement = sql!(
        "with r as (
            select * from unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::smallint[], $6::smallint[],
                $7::bigint[], $8::bool[], $9::bool[], $10::text[], $11::text[], $12::smallint[], $13::bigint[], $14::smallint[])
                as r(task, step, lease, took_us, state, outcome, delay_us, is_failure, refreshed, class, message,
                    reason, retry_after_us, delay_source)
        ), changed as (
            update holdoff.steps s set state = r.state,
                index_state = case when r.state = {ready} then {index.claimable} else {index.halted} end,
                lease = s.lease + 1,
                leased_until = null,
                due_at = clock_timestamp() + holdoff.span(coalesce(r.delay_us, 0)),
                ended_at = case when r.state = {ready} then null else clock_timestamp() end,
                failures = s.failures + r.is_failure::int,
                snoozes = s.snoozes + (not r.is_failure)::int,
                last_delay_us = case when r.is_failure then coalesce(r.delay_us, 0) else s.last_delay_us end,
                refreshed = s.refreshed or r.refreshed,
                reason = r.reason,
                class = coalesce(r.class, s.class),
                message = case when r.is_failure then r.message else s.message end
            from r where s.task = r.task and s.step = r.step and s.lease = r.lease and s.state = {running}
            returning s.task, s.step, r.lease, s.state, s.failures, r.outcome, s.worker, s.claimed_at, r.took_us,
                r.delay_us, r.class, r.message, r.reason, r.retry_after_us, r.delay_source, s.lane,
                s.trace
        ), logged as (
            insert into holdoff.attempts (task, step, lease, attempt, outcome, worker, started_at, took_us, delay_us,
                class, message, reason, retry_after_us, delay_source)
            select task, step, lease, failures, outcome, worker, coalesce(claimed_at, clock_timestamp()), took_us,
                delay_us, class, message, reason, retry_after_us, delay_source from changed
        )
        select ",
        list!(ChangedColumns, Postgres),
        " from changed"
    );
    let exits = || changes.iter().map(|report| &report.exit);
    let rows = sqlx::query(statement)
        .bind(&tasks)
        .bind(&numbers)
        .bind(&leases)
        .bind(changes.iter().map(|report| as_micros_i64(report.took)).collect::<Vec<_>>())
        .bind(exits().map(|exit| exit.state().code()).collect::<Vec<_>>())
        .bind(exits().map(|exit| exit.outcome().code()).collect::<Vec<_>>())
        .bind(exits().map(|exit| exit.delay().map(as_micros_i64)).collect::<Vec<_>>())
        .bind(exits().map(Exit::is_failure).collect::<Vec<_>>())
        .bind(exits().map(Exit::is_refreshed).collect::<Vec<_>>())
        .bind(exits().map(Exit::class).collect::<Vec<_>>())
        .bind(exits().map(Exit::message).collect::<Vec<_>>())
        .bind(exits().map(|exit| exit.reason().map(FailureReason::code)).collect::<Vec<_>>())
        .bind(exits().map(|exit| exit.retry_after().map(as_micros_i64)).collect::<Vec<_>>())
        .bind(exits().map(|exit| exit.delay_source().map(DelaySource::code)).collect::<Vec<_>>())
        .fetch_all(&mut *tx)
        .await?;
    let changed = ChangedColumns::read(&rows)?;
    let notifications = exits::notifications(changes, &changed, notify);
    submit(tx, &notifications, false).await?;
    if leases.iter().any(|lease| *lease > exits::KEPT_LEASES) {
        let delete = "delete from holdoff.attempts a
            using unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease)
            where a.task = x.task and a.step = x.step and a.lease < x.lease - $4";
        let query = sqlx::query(delete).bind(&tasks).bind(&numbers).bind(&leases).bind(exits::KEPT_LEASES);
        query.execute(tx).await?;
    }
    Ok((changed.iter().map(ChangedColumns::id).collect(), notifications.len()))
}

/// Returns a receipt for each report. A report that was not accepted is looked up, because it may be a duplicate.
pub(super) async fn receipts(
    pool: &Pool,
    reports: &[Report],
    accepted: &HashSet<(StepId, i64)>,
) -> Result<Vec<Receipt>> {
    let refused: Vec<&Report> =
        reports.iter().filter(|report| !accepted.contains(&(report.step, report.lease))).collect();
    let mut recorded = HashMap::new();
    if !refused.is_empty() {
        let steps: Vec<StepId> = refused.iter().map(|report| report.step).collect();
        let leases: Vec<i64> = refused.iter().map(|report| report.lease).collect();
        let (tasks, numbers) = key_arrays(&steps);
        let query = sql!(
            "with x as (select * from unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease))
            select ",
            list!(RecordedColumns, Postgres),
            " from x join holdoff.attempts a on a.task = x.task and a.step = x.step and a.lease = x.lease
            union all
            select ",
            list!(RecordedColumns, PostgresDone),
            " from x join holdoff.done d on d.task = x.task and d.step = x.step and d.lease = x.lease
            where d.state = {succeeded}"
        );
        let rows = sqlx::query(query).bind(tasks).bind(numbers).bind(leases).fetch_all(pool).await?;
        recorded.extend(RecordedColumns::read(&rows)?.iter().map(|row| (row.key(), row.outcome)));
    }
    let receipt = |report: &Report| match recorded.get(&(report.step, report.lease)) {
        _ if accepted.contains(&(report.step, report.lease)) => Receipt::Accepted,
        Some(outcome) => exits::receipt(*outcome),
        None => Receipt::Fenced,
    };
    Ok(reports.iter().map(receipt).collect())
}
