//! Processes reports.

use std::collections::{HashMap, HashSet};

use sqlx::SqliteConnection;
use sqlx::types::Uuid;

use super::Write;
use super::claim::step_id;
use super::rows::{self, Rows, micros};
use super::submit::submit;
use crate::engine::exits::{self, Change};
use crate::store::{Receipt, Report, Result, Tell};
use crate::{Payload, StepId};

/// Returns a receipt for each report, and whether steps may have become due.
pub(super) async fn finish(
    mut write: Write,
    reports: &[Report],
    tell: Tell<'_>,
) -> Result<(Vec<Receipt>, bool)> {
    let (successes, changes) = exits::sort(reports);
    let (tx, now) = (&mut *write.tx, write.now);
    let mut accepted = succeed(tx, now, &successes).await?;
    let is_parent = |report: &&Report| report.has_children && accepted.contains(&report.step);
    let parents: Vec<StepId> =
        successes.iter().map(|(report, _)| *report).filter(is_parent).map(|report| report.step).collect();
    unblock(tx, now, &parents).await?;
    accepted.extend(change(tx, now, &changes, tell).await?);
    let receipts = receipts(tx, reports, &exits::accepted(reports, &accepted)).await?;
    write.tx.commit().await?;
    Ok((receipts, !parents.is_empty() || !changes.is_empty()))
}

/// Moves succeeded steps into the history.
pub(crate) async fn succeed(
    tx: &mut SqliteConnection,
    now: i64,
    successes: &[(&Report, &Payload)],
) -> Result<HashSet<StepId>> {
    if successes.is_empty() {
        return Ok(HashSet::new());
    }
    let mut rows = Rows::new();
    for (report, output) in successes {
        rows.step(report.step)
            .number(report.lease)
            .number(micros(report.took))
            .number(output.format.code().into())
            .bytes(Some(&output.bytes[..]).filter(|bytes| !bytes.is_empty()));
    }
    let rows = rows.finish();
    let keep = "insert into holdoff_done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
            ended_at, took_us, failures, rescues, snoozes, name, destination, output)
        select s.task, s.step, s.lane, s.policy, 3, r.value ->> 4, s.worker, s.lease, s.created_at, s.claimed_at, ?2,
            r.value ->> 3, s.failures, s.rescues, s.snoozes, s.name, s.destination, unhex(r.value ->> 5)
        from json_each(?1) r
        cross join holdoff_steps s on s.task = unhex(r.value ->> 0) and s.step = r.value ->> 1 and s.lease = r.value ->> 2
        where s.state = 2
        returning task, step";
    let kept: Vec<(Uuid, i32)> = sqlx::query_as(keep).bind(&rows).bind(now).fetch_all(&mut *tx).await?;
    let kept: HashSet<StepId> = kept.into_iter().map(|(task, step)| step_id(task, step)).collect();
    let delete = "delete from holdoff_steps where (task, step) in (
            select unhex(value ->> 0), value ->> 1 from json_each(?1))";
    sqlx::query(delete).bind(rows::steps(&kept)).execute(tx).await?;
    Ok(kept)
}

/// Unblocks the children of these finished steps. Finished parents are counted per child.
pub(crate) async fn unblock(tx: &mut SqliteConnection, now: i64, parents: &[StepId]) -> Result<()> {
    if parents.is_empty() {
        return Ok(());
    }
    let update = "update holdoff_steps as s set waiting = s.waiting - k.finished,
            state = iif(s.state = 0 and s.waiting = k.finished, 1, s.state),
            due_at = iif(s.waiting = k.finished, ?2 + s.delay_us, s.due_at)
        from (
            select e.task, e.child, count(*) as finished from json_each(?1) x
            cross join holdoff_edges e on e.task = unhex(x.value ->> 0) and e.parent = x.value ->> 1
            group by e.task, e.child
        ) k
        where s.task = k.task and s.step = k.child";
    sqlx::query(update).bind(rows::steps(parents)).bind(now).execute(tx).await?;
    Ok(())
}

/// Requeues or fails steps, or marks them as conflicted, and records the attempts.
async fn change(
    tx: &mut SqliteConnection,
    now: i64,
    changes: &[Change<'_>],
    tell: Tell<'_>,
) -> Result<Vec<StepId>> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = Rows::new();
    for change in changes {
        rows.step(change.report.step)
            .number(change.report.lease)
            .number(micros(change.report.took))
            .number(change.state.code().into())
            .number(change.outcome.code().into())
            .optional(change.delay.map(micros))
            .number(change.is_failure.into())
            .number(change.refreshed.into())
            .text(change.class)
            .text(Some(change.message));
    }
    let rows = rows.finish();
    let update = "update holdoff_steps as s set state = r.value ->> 4, lease = s.lease + 1,
            due_at = ?2 + coalesce(r.value ->> 6, 0),
            ended_at = iif(r.value ->> 4 = 1, null, ?2),
            failures = s.failures + (r.value ->> 7),
            snoozes = s.snoozes + 1 - (r.value ->> 7),
            last_delay_us = iif(r.value ->> 7, coalesce(r.value ->> 6, 0), s.last_delay_us),
            refreshed = s.refreshed or r.value ->> 8,
            class = coalesce(r.value ->> 9, s.class),
            message = iif(r.value ->> 7, r.value ->> 10, s.message)
        from json_each(?1) r
        where s.task = unhex(r.value ->> 0) and s.step = r.value ->> 1 and s.lease = r.value ->> 2 and s.state = 2
        returning task, step, lane, failures";
    let changed: Vec<(Uuid, i32, i32, i32)> =
        sqlx::query_as(update).bind(&rows).bind(now).fetch_all(&mut *tx).await?;
    let changed: Vec<exits::Changed> = changed
        .into_iter()
        .map(|(task, step, lane, failures)| (step_id(task, step), lane, failures))
        .collect();
    let log = "insert into holdoff_attempts (task, step, lease, attempt, outcome, worker, started_at, took_us, delay_us,
            class, message)
        select s.task, s.step, s.lease - 1, s.failures, r.value ->> 5, s.worker, coalesce(s.claimed_at, ?2),
            r.value ->> 3, r.value ->> 6, r.value ->> 9, r.value ->> 10
        from json_each(?1) r
        cross join holdoff_steps s on s.task = unhex(r.value ->> 0) and s.step = r.value ->> 1
            and s.lease = (r.value ->> 2) + 1
        where (s.task, s.step) in (select unhex(value ->> 0), value ->> 1 from json_each(?3))
        on conflict do nothing";
    let logged = rows::steps(changed.iter().map(|(step, ..)| step));
    sqlx::query(log).bind(&rows).bind(now).bind(logged).execute(&mut *tx).await?;
    let messages = exits::tell_of_changes(changes, &changed, tell);
    submit(tx, now, &messages, false).await?;
    if changes.iter().any(|change| change.report.lease > exits::KEPT_LEASES) {
        let forget = "delete from holdoff_attempts where (task, step, lease) in (
                select a.task, a.step, a.lease from json_each(?1) r
                cross join holdoff_attempts a on a.task = unhex(r.value ->> 0) and a.step = r.value ->> 1
                    and a.lease < (r.value ->> 2) - ?2)";
        sqlx::query(forget).bind(&rows).bind(exits::KEPT_LEASES).execute(tx).await?;
    }
    Ok(changed.into_iter().map(|(step, ..)| step).collect())
}

/// Returns a receipt for each report. A report that was not accepted is looked up, because it may be a duplicate.
async fn receipts(
    tx: &mut SqliteConnection,
    reports: &[Report],
    accepted: &HashSet<(StepId, i64)>,
) -> Result<Vec<Receipt>> {
    let mut rows = Rows::new();
    for report in reports.iter().filter(|report| !accepted.contains(&(report.step, report.lease))) {
        rows.step(report.step).number(report.lease);
    }
    let mut recorded = HashMap::new();
    if accepted.len() < reports.len() {
        let query = "select a.task, a.step, a.lease, a.outcome from json_each(?1) x
            cross join holdoff_attempts a on a.task = unhex(x.value ->> 0) and a.step = x.value ->> 1
                and a.lease = x.value ->> 2
            union all
            select d.task, d.step, d.lease, 0 from json_each(?1) x
            cross join holdoff_done d on d.task = unhex(x.value ->> 0) and d.step = x.value ->> 1
                and d.lease = x.value ->> 2 and d.state = 3";
        let found: Vec<(Uuid, i32, i64, i16)> =
            sqlx::query_as(query).bind(rows.finish()).fetch_all(tx).await?;
        recorded.extend(
            found.into_iter().map(|(task, step, lease, outcome)| ((step_id(task, step), lease), outcome)),
        );
    }
    let receipt = |report: &Report| match recorded.get(&(report.step, report.lease)) {
        _ if accepted.contains(&(report.step, report.lease)) => Receipt::Accepted,
        Some(outcome) => exits::receipt(*outcome),
        None => Receipt::Fenced,
    };
    Ok(reports.iter().map(receipt).collect())
}
