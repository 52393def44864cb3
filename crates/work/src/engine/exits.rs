//! What every engine does with reports before and after its statements.

use std::collections::{HashMap, HashSet};

use holdoff_policy::Class;

use super::columns::ChangedColumns;
use crate::store::{
    AttemptOutcome, EndedStep, Exit, NewTask, NotifyFn, Receipt, Report, Rescued, RescuedStep, StepOutput,
};
use crate::{StepId, StepState};

/// The number of leases for which reports of one step are kept: 500 runs, each of which raises the lease by two.
pub(crate) const KEPT_LEASES: i64 = 2 * 500;

/// The message of a step that failed because it lost its worker too often.
pub(crate) const LOST_TOO_OFTEN: &str =
    "its worker was lost too often in a row; the step may crash its workers";

/// Splits reports into successes, with their outputs, and other exits. Both are in the order of their steps, so that
/// two batches that touch the same rows lock them in the same order.
///
/// Each step occurs once. A worker that was paused may report a step under an old lease and under the current one in
/// one batch. Only the highest lease can be valid, and a child must not count its parent twice.
pub(crate) fn sort(reports: &[Report]) -> (Vec<(&Report, &StepOutput)>, Vec<&Report>) {
    let mut once: Vec<&Report> = reports.iter().collect();
    once.sort_by_key(|report| (report.step, std::cmp::Reverse(report.lease)));
    once.dedup_by_key(|report| report.step);
    let (mut successes, mut changes) = (Vec::with_capacity(once.len()), Vec::new());
    for report in once {
        match &report.exit {
            Exit::Succeeded(output) => successes.push((report, output)),
            _ => changes.push(report),
        }
    }
    (successes, changes)
}

/// Returns the receipt for a report under a lease whose end is on record. If a rescue ended the lease, no report did,
/// so the worker that held the step receives `Fenced`.
pub(crate) fn receipt(recorded: i16) -> Receipt {
    match AttemptOutcome::of_code(recorded) {
        None | Some(AttemptOutcome::Rescued) => Receipt::Fenced,
        Some(outcome) => Receipt::Recorded(outcome),
    }
}

/// Returns the accepted reports, given the steps that the reports kept by [`sort`] have changed.
pub(crate) fn accepted(reports: &[Report], changed: &HashSet<StepId>) -> HashSet<(StepId, i64)> {
    let mut accepted = HashMap::with_capacity(changed.len());
    for report in reports.iter().filter(|report| changed.contains(&report.step)) {
        let lease = accepted.entry(report.step).or_insert(report.lease);
        *lease = report.lease.max(*lease);
    }
    accepted.into_iter().collect()
}

/// Returns the notification tasks for those of the changed steps that ended.
pub(crate) fn notifications(
    changes: &[&Report],
    changed: &[ChangedColumns],
    notify: NotifyFn<'_>,
) -> Vec<NewTask> {
    let by_step: HashMap<StepId, &Exit> = changes.iter().map(|report| (report.step, &report.exit)).collect();
    let ended = |row: &ChangedColumns| {
        let exit = by_step.get(&row.id()).filter(|exit| exit.state() != StepState::Ready)?;
        notify(&ended_step(row, exit.state(), exit.class().unwrap_or_default(), exit.message()))
    };
    changed.iter().filter_map(ended).collect()
}

/// Returns the notification tasks for the steps that lost their workers too often, and the result of the rescue.
pub(crate) fn rescued(back: &[ChangedColumns], notify: NotifyFn<'_>) -> (Vec<NewTask>, Rescued) {
    let has_failed = |row: &ChangedColumns| row.state == StepState::Failed.code();
    let failed: Vec<&ChangedColumns> = back.iter().filter(|row| has_failed(row)).collect();
    let ended = |row: &&ChangedColumns| {
        notify(&ended_step(row, StepState::Failed, Class::Timeout.name(), LOST_TOO_OFTEN))
    };
    let notifications = failed.iter().filter_map(ended).collect();
    let failed = failed.len() as u64;
    let step = |row: &ChangedColumns| RescuedStep {
        step: row.id(),
        lane: row.lane,
        has_failed: has_failed(row),
        failures: row.failures,
        trace: row.trace.clone(),
    };
    let steps = back.iter().map(step).collect();
    (notifications, Rescued { requeued: back.len() as u64 - failed, failed, steps })
}

fn ended_step(row: &ChangedColumns, state: StepState, class: &str, message: &str) -> EndedStep {
    EndedStep {
        step: row.id(),
        lane: row.lane,
        state,
        attempts: row.failures,
        class: class.to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::TaskId;

    #[test]
    fn only_the_report_with_the_higher_lease_counts() {
        let step = TaskId::fresh().step(0);
        let report = |lease| Report {
            step,
            lease,
            has_children: true,
            took: Duration::ZERO,
            ctid_hint: None,
            attempt: 1,
            destination: None,
            trace: None,
            exit: Exit::Succeeded(StepOutput::default()),
        };
        let reports = [report(3), report(1)];
        let (successes, changes) = sort(&reports);
        assert_eq!(successes.iter().map(|(report, _)| report.lease).collect::<Vec<_>>(), [3]);
        assert!(changes.is_empty());
        assert_eq!(accepted(&reports, &HashSet::from([step])), HashSet::from([(step, 3)]));
    }
}
