//! The summary of a run and its consistency check: the senders, the store and the target must agree.

use std::collections::{BTreeMap, HashSet};

use holdoff_work::StepState;
use serde::Serialize;

use super::contenders::Grants;
use super::storm::SignalCounts;
use super::target::Totals;

/// The maximum number of steps in a task of the demo.
const MAX_STEPS: u64 = 5;

/// The submitted tasks, without signals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SubmittedTasks {
    pub(super) tasks: u64,
    pub(super) steps: u64,
    /// Tasks without a response. Each of them may have been accepted.
    pub(super) unsure: u64,
}

/// The content of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreContents {
    pub(super) tasks: u64,
    pub(super) steps: StepCounts,
    pub(super) attempts: AttemptCounts,
    /// Tasks that signals created.
    pub(super) alerts: u64,
    /// The HTTP steps, by idempotency key.
    pub(super) requests: BTreeMap<String, StepState>,
    /// The highest fencing token of the contended lock.
    pub(super) token: u64,
}

/// The requests and effects that the target recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct TargetRecord {
    pub(super) totals: Totals,
    /// The keys of the requests that took effect.
    pub(super) done: HashSet<String>,
}

/// The number of steps in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct StepCounts {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) conflicted: u64,
    pub(super) discarded: u64,
    pub(super) cancelled: u64,
    pub(super) unfinished: UnfinishedSteps,
}

/// The number of unfinished steps, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct UnfinishedSteps {
    /// Steps in a paused queue.
    pub(super) paused: u64,
    /// Steps whose predecessor is unfinished or was discarded.
    pub(super) blocked: u64,
    /// Steps that did not finish before the drain timeout.
    pub(super) other: u64,
}

/// The number of attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct AttemptCounts {
    pub(super) made: u64,
    /// Attempts after which the policy granted another.
    pub(super) retried: u64,
    /// Attempts whose worker vanished.
    pub(super) rescued: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) seed: u64,
    pub(super) submitted: SubmittedCounts,
    pub(super) steps: StepCounts,
    pub(super) attempts: AttemptCounts,
    pub(super) signals: SignalSummary,
    pub(super) locks: LockSummary,
    pub(super) target: TargetSummary,
    /// The inconsistencies found.
    pub(super) inconsistencies: Vec<String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SubmittedCounts {
    pub(super) tasks: u64,
    pub(super) steps: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SignalSummary {
    pub(super) sent: u64,
    pub(super) tasks: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LockSummary {
    pub(super) granted: u64,
    pub(super) highest_token: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct TargetSummary {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) late: u64,
    pub(super) repeated: u64,
    pub(super) done: u64,
}

impl StepCounts {
    /// Counts a step by its state.
    pub(super) const fn count(&mut self, state: StepState) {
        match state {
            StepState::Succeeded => self.succeeded += 1,
            StepState::Failed => self.failed += 1,
            StepState::Conflicted => self.conflicted += 1,
            StepState::Discarded => self.discarded += 1,
            StepState::Cancelled => self.cancelled += 1,
            StepState::Blocked => self.unfinished.blocked += 1,
            _ => self.unfinished.other += 1,
        }
    }

    pub(super) const fn all(&self) -> u64 {
        let ended = self.succeeded + self.failed + self.conflicted + self.discarded + self.cancelled;
        ended + self.unfinished.paused + self.unfinished.blocked + self.unfinished.other
    }
}

impl Summary {
    pub(super) fn of(
        seed: u64,
        sent: &SubmittedTasks,
        signals: &SignalCounts,
        grants: &Grants,
        seen: &TargetRecord,
        stored: &StoreContents,
    ) -> Self {
        let Totals { requests, refused, late, repeated } = seen.totals;
        let done = seen.done.len() as u64;
        Self {
            seed,
            submitted: SubmittedCounts { tasks: sent.tasks + signals.made, steps: sent.steps + signals.made },
            steps: stored.steps,
            attempts: stored.attempts,
            signals: SignalSummary { sent: signals.sent, tasks: signals.made },
            locks: LockSummary { granted: grants.granted, highest_token: stored.token },
            target: TargetSummary { requests, refused, late, repeated, done },
            inconsistencies: find_inconsistencies(sent, signals, grants, seen, stored),
        }
    }
}

/// Returns the inconsistencies. A request without a response may or may not have taken effect.
fn find_inconsistencies(
    sent: &SubmittedTasks,
    signals: &SignalCounts,
    grants: &Grants,
    seen: &TargetRecord,
    stored: &StoreContents,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, sent: u64, unsure: u64, stored: u64| {
        if !(sent..=sent + unsure).contains(&stored) {
            found.push(format!("{what}: {sent} according to the senders, {stored} according to the store"));
        }
    };
    compare("tasks", sent.tasks + signals.made, sent.unsure + signals.unsure, stored.tasks);
    let unsure = MAX_STEPS * sent.unsure + signals.unsure;
    compare("steps", sent.steps + signals.made, unsure, stored.steps.all());
    compare("signals", signals.sent, signals.unsure, signals.counted());
    compare("tasks created by signals", signals.made, signals.unsure, stored.alerts);

    let undone = stored
        .requests
        .iter()
        .filter(|(key, state)| **state == StepState::Succeeded && !seen.done.contains(*key));
    found.extend(undone.map(|(key, _)| format!("step {key} succeeded without an effect at the target")));
    // An unfinished step may have taken effect before its result was reported.
    let may_be_done = |key: &String| {
        let state = stored.requests.get(key);
        state.is_some_and(|state| state.is_live() || *state == StepState::Succeeded)
    };
    let too_much = seen.done.iter().filter(|key| !may_be_done(key));
    found.extend(
        too_much.map(|key| format!("the target recorded an effect for {key}, which did not succeed")),
    );

    let highest = grants.highest.map_or(0, holdoff_lock::Token::get);
    if grants.out_of_order > 0 || highest > stored.token {
        let (count, token) = (grants.out_of_order, stored.token);
        found.push(format!(
            "locks: {count} fencing tokens did not increase; {highest} was granted, the store has {token}"
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Run {
        sent: SubmittedTasks,
        signals: SignalCounts,
        grants: Grants,
        seen: TargetRecord,
        stored: StoreContents,
    }

    /// Three requests, of which the target refuses one permanently, and an alert for two signals.
    fn run() -> Run {
        let mut signals = SignalCounts::default();
        signals.record(Ok(("t".to_owned(), true, 1)));
        signals.record(Ok(("t".to_owned(), false, 2)));
        let mut stored = StoreContents { tasks: 4, alerts: 1, ..StoreContents::default() };
        for (key, state) in [
            ("a", StepState::Succeeded),
            ("b", StepState::Succeeded),
            ("c", StepState::Failed),
            ("t", StepState::Succeeded),
        ] {
            stored.steps.count(state);
            stored.requests.insert(key.to_owned(), state);
        }
        let done = ["a", "b", "t"].map(str::to_owned).into();
        let seen = TargetRecord { totals: Totals { requests: 6, refused: 3, late: 0, repeated: 0 }, done };
        Run {
            sent: SubmittedTasks { tasks: 3, steps: 3, unsure: 0 },
            signals,
            grants: Grants::default(),
            seen,
            stored,
        }
    }

    fn inconsistencies(change: impl FnOnce(&mut Run)) -> Vec<String> {
        let mut run = run();
        change(&mut run);
        Summary::of(1, &run.sent, &run.signals, &run.grants, &run.seen, &run.stored).inconsistencies
    }

    #[test]
    fn a_consistent_run_has_no_inconsistencies() {
        assert_eq!(inconsistencies(|_| {}), [""; 0]);
    }

    #[test]
    fn every_difference_is_reported() {
        assert!(inconsistencies(|run| run.sent.tasks = 4)[0].starts_with("tasks: 5"));
        assert!(inconsistencies(|run| run.stored.steps.unfinished.blocked = 1)[0].starts_with("steps: 4"));
        assert!(inconsistencies(|run| run.signals.sent = 3)[0].starts_with("signals: 3"));
        assert!(inconsistencies(|run| run.stored.alerts = 2)[0].starts_with("tasks created by signals: 1"));
        let undone = inconsistencies(|run| drop(run.seen.done.take("a")));
        assert_eq!(undone, ["step a succeeded without an effect at the target"]);
        let too_much = inconsistencies(|run| run.seen.done.extend(["c".to_owned()]));
        assert_eq!(too_much, ["the target recorded an effect for c, which did not succeed"]);
        assert!(inconsistencies(|run| run.grants.out_of_order = 1)[0].starts_with("locks: 1"));
    }

    #[test]
    fn requests_without_a_response_may_have_taken_effect() {
        assert_eq!(inconsistencies(|run| run.sent.unsure = 1), [""; 0]);
        let there = |run: &mut Run| {
            run.sent.unsure = 1;
            run.stored.tasks += 1;
            run.stored.steps.unfinished.blocked += 5;
        };
        assert_eq!(inconsistencies(there), [""; 0]);
    }

    #[test]
    fn the_total_includes_every_state() {
        let mut steps = StepCounts::default();
        for state in StepState::ALL {
            steps.count(state);
        }
        assert_eq!(steps.all(), StepState::ALL.len() as u64);
    }
}
