//! What a run came to, and whether it adds up: what was sent, what the store holds and what the target saw must tell
//! the same story.

use std::collections::{BTreeMap, HashSet};

use holdoff_work::StepState;
use serde::Serialize;

use super::rivals::Grants;
use super::storm::Signals;
use super::target::Totals;

/// The most steps that one task of the demo has.
const MOST_STEPS: u64 = 5;

/// What was sent, besides signals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) tasks: u64,
    pub(super) steps: u64,
    /// Tasks whose answer was lost: each may have been taken in.
    pub(super) unsure: u64,
}

/// What the store holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) tasks: u64,
    pub(super) steps: Steps,
    pub(super) attempts: Attempts,
    /// Tasks that signals made.
    pub(super) alerts: u64,
    /// The steps that are requests, by their idempotency keys.
    pub(super) requests: BTreeMap<String, StepState>,
    /// The highest token that was granted of the lock that several want.
    pub(super) token: u64,
}

/// What the target did.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) totals: Totals,
    /// The keys of what was done.
    pub(super) done: HashSet<String>,
}

/// How many steps are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Steps {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) conflicted: u64,
    pub(super) discarded: u64,
    pub(super) cancelled: u64,
    pub(super) left: Left,
}

/// How many steps are not over, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Left {
    /// Their queue is paused.
    pub(super) paused: u64,
    /// A step before them is not over, or was given up.
    pub(super) blocked: u64,
    /// They did not end in time.
    pub(super) unfinished: u64,
}

/// How often steps were tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Attempts {
    pub(super) made: u64,
    /// Those after which the policy granted another.
    pub(super) retried: u64,
    /// Those whose worker vanished.
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
    /// What does not add up.
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
    /// Counts a step that is over.
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

/// What does not add up. Whatever was asked for without an answer may have been done, or not.
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
    // What is not over may have been done, and not told yet.
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

    /// Three requests, one of them refused for good, and an alert for two signals.
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
