//! What every engine does with reports before and after its statements.

use std::collections::{HashMap, HashSet};

use holdoff_policy::Class;

use super::columns::ChangedColumns;
use crate::store::{
    AttemptOutcome, EndedStep, Exit, NewTask, NotifyFn, Receipt, Report, Rescued, RescuedStep, StepOutput,
};
use crate::{StepId, StepState};

/// The number of leases for which reports of one step are kept: 500 runs, each of which raises the lease by two.
pub(crate) const KEPT_LEASES: i64 = 1000;

/// The message of a step that failed because it lost its worker too often.
pub(crate) const LOST_TOO_OFTEN: &str =
    "its worker was lost too often in a row; the step may crash its workers";

/// The message of a step whose start-by time has passed.
pub(crate) const EXPIRED: &str = "the step was not started by its start-by time";

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

/// Returns the result of a rescue or an expiry, and the notification tasks for the steps that have failed for this reason.
pub(crate) fn rescued(back: &[ChangedColumns], why: &str, notify: NotifyFn<'_>) -> (Vec<NewTask>, Rescued) {
    let has_failed = |row: &ChangedColumns| row.state == StepState::Failed.code();
    let failed: Vec<&ChangedColumns> = back.iter().filter(|row| has_failed(row)).collect();
    let ended =
        |row: &&ChangedColumns| notify(&ended_step(row, StepState::Failed, Class::Timeout.name(), why));
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
    use crate::store::FailureText;
    use crate::{DelaySource, FailureReason};

    fn report(step: StepId, lease: i64, exit: Exit) -> Report {
        let (took, ctid_hint, destination, trace) = (Duration::ZERO, None, None, None);
        Report { step, lease, has_children: true, took, ctid_hint, attempt: 1, destination, trace, exit }
    }

    #[test]
    fn only_the_report_with_the_higher_lease_counts() {
        let step = TaskId::fresh().step(0);
        let report = |lease| report(step, lease, Exit::Succeeded(StepOutput::default()));
        let reports = [report(3), report(1)];
        let (successes, changes) = sort(&reports);
        assert_eq!(successes.iter().map(|(report, _)| report.lease).collect::<Vec<_>>(), [3]);
        assert!(changes.is_empty());
        assert_eq!(accepted(&reports, &HashSet::from([step])), HashSet::from([(step, 3)]));
    }

    #[test]
    fn a_step_that_ended_causes_a_notification_and_a_step_that_returns_does_not() {
        let why = |class| FailureText::new(class, "why".to_owned());
        let (delay, source) = (Duration::ZERO, DelaySource::Policy);
        let exits = [
            Exit::Failed(why(Class::Permanent), FailureReason::Permanent),
            Exit::Retry { delay, source, refreshed: false, why: why(Class::Transient) },
            Exit::Conflicted(why(Class::Conflict)),
        ];
        let reports = exits.map(|exit| report(TaskId::fresh().step(0), 1, exit));
        let changed = |report: &Report| ChangedColumns {
            task: report.step.task.as_uuid(),
            step: report.step.number,
            lane: 7,
            state: report.exit.state().code(),
            failures: 1,
            trace: None,
        };
        let changed = reports.each_ref().map(changed);
        let told = parking_lot::Mutex::new(Vec::new());
        let notify = |ended: &EndedStep| {
            let EndedStep { step, lane, state, attempts, class, message } = ended.clone();
            told.lock().push((step, state, class, message));
            assert_eq!((lane, attempts), (7, 1));
            let (id, namespace) = (TaskId::fresh(), String::new());
            Some(NewTask { id, namespace, dedup: None, trace: None, steps: Vec::new(), edges: Vec::new() })
        };
        let tasks = notifications(&reports.each_ref(), &changed, &notify);
        let first = std::mem::take(&mut *told.lock());
        let ended = |report: &Report, class: &str| {
            (report.step, report.exit.state(), class.to_owned(), "why".to_owned())
        };
        assert_eq!(tasks.len(), 2);
        assert_eq!(first, [ended(&reports[0], "permanent"), ended(&reports[2], "conflict")]);
        let (tasks, back) = rescued(&changed, LOST_TOO_OFTEN, &notify);
        assert_eq!(tasks.len(), 1);
        let told = told.into_inner();
        assert_eq!(
            told,
            [(reports[0].step, StepState::Failed, "timeout".to_owned(), LOST_TOO_OFTEN.to_owned())]
        );
        assert_eq!((back.requeued, back.failed), (2, 1));
        assert_eq!(back.steps.iter().map(|step| step.has_failed).collect::<Vec<_>>(), [true, false, false]);
    }
}
