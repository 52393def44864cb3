//! The statements that process reports.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use holdoff_policy::as_micros_i64;
use sqlx::SqliteConnection;

use super::json_rows::{JsonRows, step_keys};
use super::submit;
use crate::StepId;
use crate::engine::columns::{ChangedColumns, RecordedColumns, StepKeyColumns, duration, list};
use crate::engine::exits;
use crate::engine::sql::sql;
use crate::store::{NotifyFn, Receipt, Report, Result, StepOutput};

/// Moves succeeded steps into the history.
pub(crate) async fn succeed(
    tx: &mut SqliteConnection,
    now: i64,
    successes: &[(&Report, &StepOutput)],
) -> Result<HashSet<StepId>> {
    if successes.is_empty() {
        return Ok(HashSet::new());
    }
    let mut rows = JsonRows::new();
    for (report, output) in successes {
        rows.step(report.step)
            .number(report.lease)
            .number(as_micros_i64(report.took))
            .number(output.payload.format.code().into())
            .bytes(Some(&output.payload.bytes[..]).filter(|bytes| !bytes.is_empty()))
            .text(Some(output.note.as_str()).filter(|note| !note.is_empty()));
    }
    let rows = rows.finish();
    let keep = sql!("insert into holdoff_done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
            ended_at, took_us, failures, rescues, snoozes, name, destination, output, message)
        select s.task, s.step, s.lane, s.policy, {succeeded}, r.value ->> 4, s.worker, s.lease, s.created_at, s.claimed_at, ?2,
            r.value ->> 3, s.failures, s.rescues, s.snoozes, s.name, s.destination, unhex(r.value ->> 5), r.value ->> 6
        from json_each(?1) r
        cross join holdoff_steps s on s.task = unhex(r.value ->> 0) and s.step = r.value ->> 1 and s.lease = r.value ->> 2
        where s.state = {running}
        returning ", list!(StepKeyColumns, Sqlite));
    let kept = sqlx::query(keep).bind(&rows).bind(now).fetch_all(&mut *tx).await?;
    let kept: HashSet<StepId> = StepKeyColumns::read(&kept)?.iter().map(StepKeyColumns::id).collect();
    let delete = "delete from holdoff_steps where (task, step) in (
            select unhex(value ->> 0), value ->> 1 from json_each(?1))";
    sqlx::query(delete).bind(step_keys(&kept)).execute(tx).await?;
    Ok(kept)
}

/// Unblocks the children of these finished steps, and returns the delays of those that are due later. Finished parents are
/// counted per child.
pub(crate) async fn unblock(
    tx: &mut SqliteConnection,
    now: i64,
    parents: &[StepId],
) -> Result<BTreeSet<Duration>> {
    if parents.is_empty() {
        return Ok(BTreeSet::new());
    }
    let update = sql!(
        "update holdoff_steps as s set waiting = s.waiting - k.finished,
            state = iif(s.state = {blocked} and s.waiting = k.finished, {ready}, s.state),
            due_at = iif(s.waiting = k.finished, ?2 + s.delay_us, s.due_at)
        from (
            select e.task, e.child, count(*) as finished from json_each(?1) x
            cross join holdoff_edges e on e.task = unhex(x.value ->> 0) and e.parent = x.value ->> 1
            group by e.task, e.child
        ) k
        where s.task = k.task and s.step = k.child
        returning iif(state = {ready}, delay_us, 0)"
    );
    let delays = sqlx::query_scalar(update).bind(step_keys(parents)).bind(now).fetch_all(tx).await?;
    Ok(delays.into_iter().filter(|us| *us > 0).map(duration).collect())
}

/// Requeues or fails steps, or marks them as conflicted, and records the attempts.
pub(super) async fn change(
    tx: &mut SqliteConnection,
    now: i64,
    changes: &[&Report],
    notify: NotifyFn<'_>,
) -> Result<Vec<StepId>> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = JsonRows::new();
    for Report { step, lease, took, exit, .. } in changes {
        rows.step(*step)
            .number(*lease)
            .number(as_micros_i64(*took))
            .number(exit.state().code().into())
            .number(exit.outcome().code().into())
            .optional(exit.delay().map(as_micros_i64))
            .number(exit.is_failure().into())
            .number(exit.is_refreshed().into())
            .text(exit.class())
            .text(Some(exit.message()))
            .optional(exit.reason().map(|reason| reason.code().into()))
            .optional(exit.retry_after().map(as_micros_i64))
            .optional(exit.delay_source().map(|source| source.code().into()));
    }
    let rows = rows.finish();
    let update = sql!(
        "update holdoff_steps as s set state = r.value ->> 4, lease = s.lease + 1,
            due_at = ?2 + coalesce(r.value ->> 6, 0),
            ended_at = iif(r.value ->> 4 = {ready}, null, ?2),
            failures = s.failures + (r.value ->> 7),
            snoozes = s.snoozes + 1 - (r.value ->> 7),
            last_delay_us = iif(r.value ->> 7, coalesce(r.value ->> 6, 0), s.last_delay_us),
            refreshed = s.refreshed or r.value ->> 8,
            reason = r.value ->> 11,
            class = coalesce(r.value ->> 9, s.class),
            message = iif(r.value ->> 7, r.value ->> 10, s.message)
        from json_each(?1) r
        where s.task = unhex(r.value ->> 0) and s.step = r.value ->> 1 and s.lease = r.value ->> 2
            and s.state = {running}
        returning ",
        list!(ChangedColumns, Sqlite)
    );
    let changed = sqlx::query(update).bind(&rows).bind(now).fetch_all(&mut *tx).await?;
    let changed = ChangedColumns::read(&changed)?;
    let steps: Vec<StepId> = changed.iter().map(ChangedColumns::id).collect();
    let log = "insert into holdoff_attempts (task, step, lease, attempt, outcome, worker, started_at, took_us, delay_us,
            class, message, reason, retry_after_us, delay_source)
        select s.task, s.step, s.lease - 1, s.failures, r.value ->> 5, s.worker, coalesce(s.claimed_at, ?2),
            r.value ->> 3, r.value ->> 6, r.value ->> 9, r.value ->> 10, r.value ->> 11, r.value ->> 12, r.value ->> 13
        from json_each(?1) r
        cross join holdoff_steps s on s.task = unhex(r.value ->> 0) and s.step = r.value ->> 1
            and s.lease = (r.value ->> 2) + 1
        where (s.task, s.step) in (select unhex(value ->> 0), value ->> 1 from json_each(?3))
        on conflict do nothing";
    sqlx::query(log).bind(&rows).bind(now).bind(step_keys(&steps)).execute(&mut *tx).await?;
    submit(tx, now, &exits::notifications(changes, &changed, notify), false).await?;
    if changes.iter().any(|report| report.lease > exits::KEPT_LEASES) {
        let delete = "delete from holdoff_attempts where (task, step, lease) in (
                select a.task, a.step, a.lease from json_each(?1) r
                cross join holdoff_attempts a on a.task = unhex(r.value ->> 0) and a.step = r.value ->> 1
                    and a.lease < (r.value ->> 2) - ?2)";
        sqlx::query(delete).bind(&rows).bind(exits::KEPT_LEASES).execute(tx).await?;
    }
    Ok(steps)
}

/// Returns a receipt for each report. A report that was not accepted is looked up, because it may be a duplicate.
pub(super) async fn receipts(
    tx: &mut SqliteConnection,
    reports: &[Report],
    accepted: &HashSet<(StepId, i64)>,
) -> Result<Vec<Receipt>> {
    let mut rows = JsonRows::new();
    for report in reports.iter().filter(|report| !accepted.contains(&(report.step, report.lease))) {
        rows.step(report.step).number(report.lease);
    }
    let mut recorded = HashMap::new();
    if accepted.len() < reports.len() {
        let query = sql!(
            "select ",
            list!(RecordedColumns, Sqlite),
            " from json_each(?1) x
            cross join holdoff_attempts a on a.task = unhex(x.value ->> 0) and a.step = x.value ->> 1
                and a.lease = x.value ->> 2
            union all
            select ",
            list!(RecordedColumns, SqliteDone),
            " from json_each(?1) x
            cross join holdoff_done d on d.task = unhex(x.value ->> 0) and d.step = x.value ->> 1
                and d.lease = x.value ->> 2 and d.state = {succeeded}"
        );
        let found = sqlx::query(query).bind(rows.finish()).fetch_all(tx).await?;
        recorded.extend(RecordedColumns::read(&found)?.iter().map(|row| (row.key(), row.outcome)));
    }
    let receipt = |report: &Report| match recorded.get(&(report.step, report.lease)) {
        _ if accepted.contains(&(report.step, report.lease)) => Receipt::Accepted,
        Some(outcome) => exits::receipt(*outcome),
        None => Receipt::Fenced,
    };
    Ok(reports.iter().map(receipt).collect())
}
