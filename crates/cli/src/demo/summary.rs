//! The summary of a run and its consistency check: the senders, the store and the target must agree.

use std::collections::{BTreeMap, HashSet};

use holdoff_work::StepState;
use serde::Serialize;

use super::rivals::Grants;
use super::storm::Signals;
use super::target::Totals;

/// The maximum number of steps in a task of the demo.
const MOST_STEPS: u64 = 5;

/// The submitted tasks, without signals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) tasks: u64,
    pub(super) steps: u64,
    /// Tasks without a response. Each of them may have been accepted.
    pub(super) unsure: u64,
}

/// The content of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) tasks: u64,
    pub(super) steps: Steps,
    pub(super) attempts: Attempts,
    /// Tasks that signals created.
    pub(super) alerts: u64,
    /// The HTTP steps, by idempotency key.
    pub(super) requests: BTreeMap<String, StepState>,
    /// The highest fencing token of the contended lock.
    pub(super) token: u64,
}

/// The requests and effects that the target recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) totals: Totals,
    /// The keys of the requests that took effect.
    pub(super) done: HashSet<String>,
}

/// The number of steps in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Steps {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) conflicted: u64,
    pub(super) discarded: u64,
    pub(super) cancelled: u64,
    pub(super) left: Left,
}

/// The number of unfinished steps, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Left {
    /// Steps in a paused queue.
    pub(super) paused: u64,
    /// Steps whose predecessor is unfinished or was discarded.
    pub(super) blocked: u64,
    /// Steps that did not finish before the drain timeout.
    pub(super) unfinished: u64,
}

/// The number of attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Attempts {
    pub(super) made: u64,
    /// Attempts after which the policy granted another.
    pub(super) retried: u64,
    /// Attempts whose worker vanished.
    pub(super) rescued: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) seed: u64,
    pub(super) submitted: Submitted,
    pub(super) steps: Steps,
    pub(super) attempts: Attempts,
    pub(super) signals: Signalled,
    pub(super) locks: Locked,
    pub(super) target: Called,
    /// The inconsistencies found.
    pub(super) wrong: Vec<String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Submitted {
    pub(super) tasks: u64,
    pub(super) steps: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Signalled {
    pub(super) sent: u64,
    pub(super) tasks: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Locked {
    pub(super) granted: u64,
    pub(super) highest_token: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Called {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) late: u64,
    pub(super) repeated: u64,
    pub(super) done: u64,
}

impl Steps {
    /// Counts a step by its state.
    pub(super) const fn count(&mut self, state: StepState) {
        match state {
            StepState::Succeeded => self.succeeded += 1,
            StepState::Failed => self.failed += 1,
            StepState::Conflicted => self.conflicted += 1,
            StepState::Discarded => self.discarded += 1,
            StepState::Cancelled => self.cancelled += 1,
            StepState::Blocked => self.left.blocked += 1,
            _ => self.left.unfinished += 1,
        }
    }

    pub(super) const fn all(&self) -> u64 {
        let ended = self.succeeded + self.failed + self.conflicted + self.discarded + self.cancelled;
        ended + self.left.paused + self.left.blocked + self.left.unfinished
    }
}

impl Summary {
    pub(super) fn of(
        seed: u64,
        sent: &Sent,
        signals: &Signals,
        grants: &Grants,
        seen: &Seen,
        stored: &Stored,
    ) -> Self {
        let Totals { requests, refused, late, repeated } = seen.totals;
        let done = seen.done.len() as u64;
        Self {
            seed,
            submitted: Submitted { tasks: sent.tasks + signals.made, steps: sent.steps + signals.made },
            steps: stored.steps,
            attempts: stored.attempts,
            signals: Signalled { sent: signals.sent, tasks: signals.made },
            locks: Locked { granted: grants.granted, highest_token: stored.token },
            target: Called { requests, refused, late, repeated, done },
            wrong: wrong(sent, signals, grants, seen, stored),
        }
    }
}

/// Returns the inconsistencies. A request without a response may or may not have taken effect.
fn wrong(sent: &Sent, signals: &Signals, grants: &Grants, seen: &Seen, stored: &Stored) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut equal = |what: &str, told: u64, unsure: u64, found: u64| {
        if !(told..=told + unsure).contains(&found) {
            wrong.push(format!("{what}: {told} by those who sent them, {found} by the store"));
        }
    };
    equal("tasks", sent.tasks + signals.made, sent.unsure + signals.unsure, stored.tasks);
    let unsure = MOST_STEPS * sent.unsure + signals.unsure;
    equal("steps", sent.steps + signals.made, unsure, stored.steps.all());
    equal("signals", signals.sent, signals.unsure, signals.counted());
    equal("tasks that signals made", signals.made, signals.unsure, stored.alerts);

    let undone = stored
        .requests
        .iter()
        .filter(|(key, state)| **state == StepState::Succeeded && !seen.done.contains(*key));
    wrong.extend(undone.map(|(key, _)| format!("step {key} has succeeded, and the target did nothing")));
    // An unfinished step may have taken effect before its result was reported.
    let may_be_done = |key: &String| {
        let state = stored.requests.get(key);
        state.is_some_and(|state| state.is_live() || *state == StepState::Succeeded)
    };
    let too_much = seen.done.iter().filter(|key| !may_be_done(key));
    wrong.extend(too_much.map(|key| format!("the target did {key}, which is no step that has succeeded")));

    let highest = grants.highest.map_or(0, holdoff_lock::Token::get);
    if grants.out_of_order > 0 || highest > stored.token {
        let (count, token) = (grants.out_of_order, stored.token);
        wrong.push(format!(
            "locks: {count} tokens did not rise; {highest} was granted, the store is at {token}"
        ));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Run {
        sent: Sent,
        signals: Signals,
        grants: Grants,
        seen: Seen,
        stored: Stored,
    }

    /// Three requests, of which the target refuses one permanently, and an alert for two signals.
    fn run() -> Run {
        let mut signals = Signals::default();
        signals.note(Ok(("t".to_owned(), true, 1)));
        signals.note(Ok(("t".to_owned(), false, 2)));
        let mut stored = Stored { tasks: 4, alerts: 1, ..Stored::default() };
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
        let seen = Seen { totals: Totals { requests: 6, refused: 3, late: 0, repeated: 0 }, done };
        Run { sent: Sent { tasks: 3, steps: 3, unsure: 0 }, signals, grants: Grants::default(), seen, stored }
    }

    fn wrong(change: impl FnOnce(&mut Run)) -> Vec<String> {
        let mut run = run();
        change(&mut run);
        Summary::of(1, &run.sent, &run.signals, &run.grants, &run.seen, &run.stored).wrong
    }

    #[test]
    fn a_run_that_adds_up_says_so() {
        assert_eq!(wrong(|_| {}), [""; 0]);
    }

    #[test]
    fn whatever_is_missing_or_too_much_is_named() {
        assert!(wrong(|run| run.sent.tasks = 4)[0].starts_with("tasks: 5"));
        assert!(wrong(|run| run.stored.steps.left.blocked = 1)[0].starts_with("steps: 4"));
        assert!(wrong(|run| run.signals.sent = 3)[0].starts_with("signals: 3"));
        assert!(wrong(|run| run.stored.alerts = 2)[0].starts_with("tasks that signals made: 1"));
        let undone = wrong(|run| drop(run.seen.done.take("a")));
        assert_eq!(undone, ["step a has succeeded, and the target did nothing"]);
        let too_much = wrong(|run| run.seen.done.extend(["c".to_owned()]));
        assert_eq!(too_much, ["the target did c, which is no step that has succeeded"]);
        assert!(wrong(|run| run.grants.out_of_order = 1)[0].starts_with("locks: 1"));
    }

    #[test]
    fn what_nobody_answered_may_be_there_or_not() {
        assert_eq!(wrong(|run| run.sent.unsure = 1), [""; 0]);
        let there = |run: &mut Run| {
            run.sent.unsure = 1;
            run.stored.tasks += 1;
            run.stored.steps.left.blocked += 5;
        };
        assert_eq!(wrong(there), [""; 0]);
    }

    #[test]
    fn every_state_is_in_the_sum() {
        let mut steps = Steps::default();
        for state in StepState::ALL {
            steps.count(state);
        }
        assert_eq!(steps.all(), StepState::ALL.len() as u64);
    }
}
