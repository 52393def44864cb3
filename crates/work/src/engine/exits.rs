//! The changes a report makes, as the columns that every engine writes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use holdoff_policy::Class;

use crate::engine::POISON;
use crate::store::{Ended, Exit, LaneId, NewTask, Outcome, Reason, Receipt, Report, Rescued, Tell};
use crate::{Payload, StepId, StepState};

/// The number of leases for which reports of one step are kept: 500 runs, each of which raises the lease by two.
pub(crate) const KEPT_LEASES: i64 = 2 * 500;

/// A report of an outcome other than success, split into columns.
pub(crate) struct Change<'r> {
    pub(crate) report: &'r Report,
    pub(crate) state: StepState,
    pub(crate) outcome: Outcome,
    /// The wait before the next run; `None` if there is no next run.
    pub(crate) delay: Option<Duration>,
    pub(crate) is_failure: bool,
    pub(crate) refreshed: bool,
    pub(crate) class: Option<&'static str>,
    pub(crate) message: &'r str,
}

/// Splits reports into successes, with their outputs, and changes. Both are in the order of their steps, so that two
/// batches that touch the same rows lock them in the same order.
///
/// Each step occurs once. A worker that was paused may report a step under an old lease and under the current one in
/// one batch. Only the highest lease can be valid, and a child must not count its parent twice.
pub(crate) fn sort(reports: &[Report]) -> (Vec<(&Report, &Payload)>, Vec<Change<'_>>) {
    let mut once: Vec<&Report> = reports.iter().collect();
    once.sort_by_key(|report| (report.step, std::cmp::Reverse(report.lease)));
    once.dedup_by_key(|report| report.step);
    let (mut successes, mut changes) = (Vec::with_capacity(once.len()), Vec::new());
    for report in once {
        match &report.exit {
            Exit::Succeeded(output) => successes.push((report, output)),
            _ => changes.extend(change(report)),
        }
    }
    (successes, changes)
}

/// Returns the receipt for a report under a lease whose end is on record. If a rescue ended the lease, no report did,
/// so the worker that held the step receives `Fenced`.
pub(crate) fn receipt(recorded: i16) -> Receipt {
    match Outcome::of_code(recorded) {
        None | Some(Outcome::Rescued) => Receipt::Fenced,
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

/// A changed step: its id, its lane, and its failures so far.
pub(crate) type Changed = (StepId, LaneId, i32);

/// Returns the notification tasks for those of the changed steps that ended.
pub(crate) fn tell_of_changes(changes: &[Change<'_>], changed: &[Changed], tell: Tell<'_>) -> Vec<NewTask> {
    let by_step: HashMap<StepId, &Change<'_>> =
        changes.iter().map(|change| (change.report.step, change)).collect();
    let ended = |(step, lane, attempts): &Changed| {
        let change = by_step.get(step).filter(|change| change.state != StepState::Ready)?;
        let (class, message) = (change.class.unwrap_or_default().to_owned(), change.message.to_owned());
        tell(&Ended { step: *step, lane: *lane, state: change.state, attempts: *attempts, class, message })
    };
    changed.iter().filter_map(ended).collect()
}

/// A rescued step: its id, its lane, its new state, and its failures so far.
pub(crate) type Back = (StepId, LaneId, i16, i32);

/// Returns the notification tasks for the steps that lost their workers too often, and the numbers of rescued steps by
/// result.
pub(crate) fn tell_of_rescue(back: &[Back], tell: Tell<'_>) -> (Vec<NewTask>, Rescued) {
    let state = StepState::Failed;
    let poisonous: Vec<&Back> = back.iter().filter(|(.., code, _)| *code == state.code()).collect();
    let ended = |(step, lane, _, attempts): &&Back| {
        let (class, message) = (Class::Timeout.name().to_owned(), POISON.to_owned());
        tell(&Ended { step: *step, lane: *lane, state, attempts: *attempts, class, message })
    };
    let failed = poisonous.len() as u64;
    let messages = poisonous.iter().filter_map(ended).collect();
    let lanes = back.iter().map(|(_, lane, code, _)| (*lane, *code == state.code())).collect();
    (messages, Rescued { requeued: back.len() as u64 - failed, failed, lanes })
}

fn change(report: &Report) -> Option<Change<'_>> {
    let ended = |state, outcome, why: &'_ crate::store::Why| (state, outcome, why.class);
    let (state, outcome, class) = match &report.exit {
        Exit::Succeeded(_) => return None,
        Exit::Retry { why, .. } => ended(StepState::Ready, Outcome::Retried, why),
        Exit::Failed(why) => ended(StepState::Failed, Outcome::Failed, why),
        Exit::Conflicted(why) => ended(StepState::Conflicted, Outcome::Conflicted, why),
        Exit::Requeued { reason, .. } => (StepState::Ready, reason.outcome(), ""),
    };
    let (delay, message) = match &report.exit {
        Exit::Retry { delay, why, .. } => (Some(*delay), why.message.as_str()),
        Exit::Requeued { delay, message, .. } => (Some(*delay), message.as_str()),
        Exit::Failed(why) | Exit::Conflicted(why) => (None, why.message.as_str()),
        Exit::Succeeded(_) => return None,
    };
    Some(Change {
        report,
        state,
        outcome,
        delay,
        is_failure: !matches!(report.exit, Exit::Requeued { .. }),
        refreshed: matches!(report.exit, Exit::Retry { refreshed: true, .. }),
        class: Some(class).filter(|class| !class.is_empty()),
        message,
    })
}

impl Reason {
    pub(crate) const fn outcome(self) -> Outcome {
        match self {
            Self::Snoozed => Outcome::Snoozed,
            Self::Shutdown => Outcome::Shutdown,
            Self::Busy => Outcome::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskId;

    #[test]
    fn of_two_reports_of_one_step_only_the_later_counts() {
        let step = TaskId::fresh().step(0);
        let report = |lease| Report {
            step,
            lease,
            has_children: true,
            took: Duration::ZERO,
            whereabouts: None,
            attempt: 1,
            destination: None,
            exit: Exit::Succeeded(Payload::empty()),
        };
        let reports = [report(3), report(1)];
        let (successes, changes) = sort(&reports);
        assert_eq!(successes.iter().map(|(report, _)| report.lease).collect::<Vec<_>>(), [3]);
        assert!(changes.is_empty());
        assert_eq!(accepted(&reports, &HashSet::from([step])), HashSet::from([(step, 3)]));
    }
}
