//! Waiting for a lock, as a pure core. Its inputs are events, its outputs are actions.
//!
//! ```text
//!   ask ──granted──▶ done          a clear no: wait for the first of
//!    ▲ │                             word that it is ours   ask at once      not an attempt
//!    │ └─no clear answer─▶ read      word that it is free   a little later   not an attempt
//!    │        back by nonce │        the lease ends         a little later   not an attempt
//!    └──────────────────────┴─────── the backoff is over    ask              an attempt
//!                                    the deadline           give up
//! ```
//!
//! Only attempts count against the policy. Other requests are bounded too: after [`MOST_UNPAID`] of them, only the
//! backoff leads to another request.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Attempt, Class, Decision, Failure, Policy, Refusal, SoFar};

use crate::tenure;
use crate::wakes::Heard;
use crate::{Nonce, Token};

/// The maximum number of requests between two attempts.
const MOST_UNPAID: u32 = 16;
/// The shortest wait. It keeps any policy from a busy loop.
const SHORTEST: Duration = Duration::from_millis(1);
/// How much longer the contender counts as waiting than the time within which it asks again.
const GRACE: Duration = Duration::from_secs(1);
/// The share of the delay window for each waiter when all may ask at once.
const SLOT_US: u64 = 5_000;
/// The number of waiters from which the policy's contention-aware backoff applies: the more waiters, the less often the
/// contender asks. With fewer waiters the plain backoff does better.
const A_CROWD: u32 = 8;
const NARROWEST_US: u64 = 20_000;
const WIDEST_US: u64 = 1_000_000;

/// One acquisition in progress.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    nonce: Nonce,
    policy: Arc<Policy>,
    lease: Duration,
    began: Duration,
    deadline: Option<Duration>,
    attempt: Attempt,
    last_delay: Duration,
    /// The time of the next attempt.
    attempt_at: Option<Duration>,
    /// The time of the next request that is not an attempt.
    look_at: Option<Duration>,
    /// Whether the remaining time allows no other attempt. Only a notification, or the expiry of the lease, leads to a
    /// request.
    is_last: bool,
    unpaid: u32,
    waiting: u32,
    /// The time since which there may be a grant whose response was lost.
    unclear_since: Option<Duration>,
    drawn: Option<Backoff>,
}

/// A backoff that was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Backoff {
    pub(crate) after: Attempt,
    pub(crate) delay: Duration,
}

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// The lock was granted.
    Granted(Token),
    /// The lock was refused: the time until it is free, if known, and the number of waiters.
    Held { free_in: Option<Duration>, waiting: u32 },
    /// There was no clear response. The lock may have been granted.
    Unclear,
    /// The request was not sent, but a later one may be.
    Unasked,
    /// The store will never grant the lock.
    Refused,
}

/// The next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Ask the store, and state how long this contender counts as waiting.
    Ask { waits: Duration },
    /// Ask the store whether the nonce holds the lock.
    ReadBack,
    /// Wait until this time, or until a notification.
    Wait { until: Duration },
    /// The lock is held. Its lease counts from `sent`.
    Granted { token: Token, sent: Duration },
    /// Give up.
    GiveUp(Why),
}

/// The reason for giving up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// All attempts are used.
    Exhausted,
    /// The deadline has passed.
    Deadline,
    /// The store rejected the request for good.
    Refused,
}

impl Wait {
    pub(crate) fn new(
        nonce: Nonce,
        policy: Arc<Policy>,
        lease: Duration,
        deadline: Option<Duration>,
        now: Duration,
    ) -> Self {
        let shorter = [deadline, policy.deadline()].into_iter().flatten().min();
        Self {
            nonce,
            policy,
            lease,
            began: now,
            deadline: shorter.map(|shorter| now.saturating_add(shorter)),
            attempt: Attempt::FIRST,
            last_delay: Duration::ZERO,
            attempt_at: None,
            look_at: None,
            is_last: false,
            unpaid: 0,
            waiting: 0,
            unclear_since: None,
            drawn: None,
        }
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempt.get()
    }

    pub(crate) fn waited(&self, now: Duration) -> Duration {
        now.saturating_sub(self.began)
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Returns the backoff that was drawn since the last call.
    pub(crate) fn drawn(&mut self) -> Option<Backoff> {
        self.drawn.take()
    }

    /// Returns the first action.
    pub(crate) fn start(&self, now: Duration) -> Next {
        self.ask(now)
    }

    /// Handles the result of the request that was sent at `sent`.
    pub(crate) fn answered(&mut self, reply: Reply, sent: Duration, now: Duration, roll: u32) -> Next {
        match reply {
            // A grant whose response took as long as the lease is not valid. The nonce makes a repeated request safe.
            Reply::Granted(token) => self.granted(token, sent, now, roll),
            Reply::Held { free_in, waiting } => {
                self.waiting = waiting;
                let until = free_in.map(|free_in| now.saturating_add(free_in));
                self.look_at = until.map(|until| until.saturating_add(self.nudge(roll)));
                let crowd = if waiting < A_CROWD { 0 } else { waiting };
                self.back_off(&Failure::new(Class::Contended).with_crowd(crowd), now, roll)
            }
            Reply::Unclear => {
                // Keep the earliest: the lease of any of the unclear requests did not start before it.
                self.unclear_since = Some(self.unclear_since.map_or(sent, |since| since.min(sent)));
                Next::ReadBack
            }
            Reply::Unasked => self.back_off(&Failure::transient().local(), now, roll),
            Reply::Refused => Next::GiveUp(Why::Refused),
        }
    }

    /// Handles the result of a read-back: the token, or `None` if the nonce does not hold the lock or there was no
    /// response.
    pub(crate) fn read_back(&mut self, found: Option<Token>, now: Duration, roll: u32) -> Next {
        match (found, self.unclear_since) {
            (Some(token), Some(since)) => self.granted(token, since, now, roll),
            _ => self.back_off(&Failure::transient(), now, roll),
        }
    }

    /// Injects a defect: earlier requests without a clear response do not count.
    #[cfg(test)]
    pub(crate) fn forget_unclear(&mut self) {
        self.unclear_since = None;
    }

    fn granted(&mut self, token: Token, sent: Duration, now: Duration, roll: u32) -> Next {
        if tenure::valid_until(sent, self.lease) > now {
            return Next::Granted { token, sent };
        }
        if self.is_unpaid_allowed() {
            return self.ask_unpaid(now);
        }
        self.back_off(&Failure::transient(), now, roll)
    }

    /// Handles a notification.
    pub(crate) fn heard(&mut self, heard: Heard, now: Duration, roll: u32) -> Next {
        match heard {
            Heard::Next(nonce) if nonce == self.nonce && self.is_unpaid_allowed() => {
                return self.ask_unpaid(now);
            }
            Heard::Maybe if self.is_unpaid_allowed() => {
                let soon = now.saturating_add(self.nudge(roll));
                self.look_at = Some(self.look_at.map_or(soon, |look_at| look_at.min(soon)));
            }
            Heard::Next(_) | Heard::Maybe | Heard::Nothing => {}
        }
        self.pause(now)
    }

    /// Handles the end of a wait.
    pub(crate) fn woke(&mut self, now: Duration) -> Next {
        let has_come = |moment: Option<Duration>| moment.is_some_and(|moment| moment <= now);
        if has_come(self.deadline) {
            return Next::GiveUp(Why::Deadline);
        }
        if has_come(self.attempt_at) {
            self.attempt_at = None;
            self.look_at = None;
            self.unpaid = 0;
            self.attempt = self.attempt.next();
            return self.ask(now);
        }
        if has_come(self.look_at) && self.is_unpaid_allowed() {
            return self.ask_unpaid(now);
        }
        self.pause(now)
    }

    fn ask(&self, now: Duration) -> Next {
        Next::Ask { waits: self.waits(now) }
    }

    fn ask_unpaid(&mut self, now: Duration) -> Next {
        self.look_at = None;
        self.unpaid += 1;
        self.ask(now)
    }

    fn is_unpaid_allowed(&self) -> bool {
        self.unpaid < MOST_UNPAID
    }

    /// Returns the time within which the contender certainly asks again.
    fn waits(&self, now: Duration) -> Duration {
        let crowd = self.policy.crowd().map_or(Duration::ZERO, |crowd| crowd.limit);
        let longest = self.policy.cap().max(crowd);
        let left = self.deadline.map_or(longest, |deadline| deadline.saturating_sub(now));
        longest.min(left).saturating_add(GRACE)
    }

    /// Draws the next backoff, unless one is still running: a wake-up does not restart it.
    fn back_off(&mut self, failure: &Failure, now: Duration, roll: u32) -> Next {
        if self.attempt_at.is_some() || self.is_last {
            return self.pause(now);
        }
        let so_far = SoFar {
            attempt: self.attempt,
            elapsed: self.waited(now),
            last_delay: self.last_delay,
            deadline: self.deadline.map(|deadline| deadline.saturating_sub(self.began)),
            ..SoFar::default()
        };
        match self.policy.decide(&so_far, failure, roll) {
            Decision::Retry { after } => {
                self.last_delay = after;
                self.attempt_at = Some(now.saturating_add(after.max(SHORTEST)));
                self.drawn = Some(Backoff { after: self.attempt, delay: after });
                self.pause(now)
            }
            Decision::GiveUp(Refusal::Deadline) => {
                self.is_last = true;
                self.pause(now)
            }
            _ => Next::GiveUp(Why::Exhausted),
        }
    }

    fn pause(&self, now: Duration) -> Next {
        let look_at = self.look_at.filter(|_| self.is_unpaid_allowed());
        let soonest = [self.attempt_at, look_at, self.deadline].into_iter().flatten().min();
        match soonest {
            Some(until) if self.deadline != Some(until) || until > now => Next::Wait { until },
            // Without a deadline there is always another attempt, or the policy has given up before.
            Some(_) | None => Next::GiveUp(Why::Deadline),
        }
    }

    /// Returns a small random delay from a window that is wide enough for all waiters, which were woken together.
    fn nudge(&self, roll: u32) -> Duration {
        let width_us = (u64::from(self.waiting) * SLOT_US).clamp(NARROWEST_US, WIDEST_US);
        // Derive another number than the one that the backoff is drawn with.
        let share = u64::from(roll.wrapping_mul(0x9E37_79B1));
        Duration::from_micros((width_us * share) >> 32).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use holdoff_policy::{Growth, Jitter};
    use uuid::Uuid;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINE: Nonce = Nonce::new(Uuid::from_u128(1));
    const OTHERS: Nonce = Nonce::new(Uuid::from_u128(2));
    const HELD: Reply = Reply::Held { free_in: Some(Duration::from_secs(30)), waiting: 3 };

    fn wait(deadline: Option<Duration>) -> Wait {
        let growth = Growth::constant(SECOND);
        let policy = Policy::builder(growth).jitter(Jitter::None).attempts(3).build().unwrap();
        Wait::new(MINE, Arc::new(policy), SECOND * 30, deadline, Duration::ZERO)
    }

    fn asks(next: Next) -> bool {
        matches!(next, Next::Ask { .. })
    }

    #[test]
    fn a_backoff_is_an_attempt_and_the_last_one_gives_up() {
        let mut wait = wait(None);
        assert!(asks(wait.start(Duration::ZERO)));
        for attempt in 1..3 {
            let now = SECOND * (attempt - 1);
            let next = wait.answered(HELD, now, now, 0);
            assert_eq!(next, Next::Wait { until: now + SECOND });
            assert!(asks(wait.woke(now + SECOND)));
        }
        assert_eq!(wait.attempts(), 3);
        assert_eq!(wait.answered(HELD, SECOND * 2, SECOND * 2, 0), Next::GiveUp(Why::Exhausted));
    }

    #[test]
    fn a_wake_up_is_no_attempt_and_leaves_the_backoff_as_it_is() {
        let mut wait = wait(None);
        let until = wait.answered(HELD, Duration::ZERO, Duration::ZERO, 0);
        for _ in 0..5 {
            assert!(asks(wait.heard(Heard::Next(MINE), SECOND / 2, 0)));
            assert_eq!(wait.answered(HELD, SECOND / 2, SECOND / 2, 0), until);
        }
        assert_eq!(wait.attempts(), 1);
    }

    #[test]
    fn a_turn_that_is_anothers_is_left_to_it() {
        let mut wait = wait(None);
        let until = wait.answered(HELD, Duration::ZERO, Duration::ZERO, 0);
        assert_eq!(wait.heard(Heard::Next(OTHERS), SECOND / 2, 0), until);
    }

    #[test]
    fn those_who_are_woken_together_ask_apart() {
        let at = |roll| {
            let mut wait = wait(None);
            wait.answered(HELD, Duration::ZERO, Duration::ZERO, 0);
            match wait.heard(Heard::Maybe, SECOND / 2, roll) {
                Next::Wait { until } => until,
                next => panic!("{next:?}"),
            }
        };
        let all: std::collections::BTreeSet<_> =
            (0..100_u32).map(|n| at(n.wrapping_mul(0x2545_F491))).collect();
        assert!(all.len() > 90, "{} different moments", all.len());
        assert!(all.iter().all(|at| (SECOND / 2..SECOND / 2 + SECOND / 40).contains(at)));
    }

    #[test]
    fn the_end_of_a_lease_before_the_backoff_is_looked_at_and_is_no_attempt() {
        let mut wait = wait(None);
        let ends_soon = Reply::Held { free_in: Some(SECOND / 4), waiting: 1 };
        let next = wait.answered(ends_soon, Duration::ZERO, Duration::ZERO, u32::MAX / 2);
        let Next::Wait { until } = next else { panic!("{next:?}") };
        assert!((SECOND / 4..SECOND / 3).contains(&until), "{until:?}");
        assert!(asks(wait.woke(until)));
        assert_eq!(wait.attempts(), 1);
    }

    #[test]
    fn a_store_that_always_says_soon_is_not_asked_for_ever() {
        let mut wait = wait(None);
        let (mut now, mut asked) = (Duration::ZERO, 0);
        let mut next = wait.start(now);
        loop {
            next = match next {
                Next::Ask { .. } => {
                    asked += 1;
                    wait.answered(Reply::Held { free_in: Some(Duration::ZERO), waiting: 1 }, now, now, 0)
                }
                Next::Wait { until } => {
                    assert!(until > now, "it must not spin");
                    now = until;
                    wait.woke(now)
                }
                Next::GiveUp(why) => break assert_eq!(why, Why::Exhausted),
                next => panic!("{next:?}"),
            };
        }
        assert_eq!(asked, 3 + 2 * MOST_UNPAID);
    }

    #[test]
    fn a_policy_without_delays_does_not_spin() {
        let policy = Policy::builder(Growth::constant(Duration::ZERO)).attempts(Policy::UNLIMITED);
        let policy = Arc::new(policy.build().unwrap());
        let mut wait = Wait::new(MINE, policy, SECOND, None, Duration::ZERO);
        let held = Reply::Held { free_in: None, waiting: 0 };
        assert_eq!(wait.answered(held, Duration::ZERO, Duration::ZERO, 0), Next::Wait { until: SHORTEST });
    }

    #[test]
    fn a_deadline_too_near_for_an_attempt_is_still_waited_for() {
        let mut wait = wait(Some(SECOND / 2));
        let next = wait.answered(HELD, Duration::ZERO, Duration::ZERO, 0);
        assert_eq!(next, Next::Wait { until: SECOND / 2 });
        assert!(asks(wait.heard(Heard::Next(MINE), SECOND / 3, 0)));
        wait.answered(HELD, SECOND / 3, SECOND / 3, 0);
        assert_eq!(wait.woke(SECOND / 2), Next::GiveUp(Why::Deadline));
    }

    #[test]
    fn a_lost_answer_is_found_again_and_measured_from_the_first_that_may_have_been_granted() {
        let mut wait = wait(None);
        assert_eq!(wait.answered(Reply::Unclear, SECOND, SECOND * 2, 0), Next::ReadBack);
        let Next::Wait { until } = wait.read_back(None, SECOND * 2, 0) else { panic!("the store is away") };
        assert!(asks(wait.woke(until)));
        assert_eq!(wait.answered(Reply::Unclear, until, until, 0), Next::ReadBack);
        let found = wait.read_back(Some(Token::new(7)), until, 0);
        assert_eq!(found, Next::Granted { token: Token::new(7), sent: SECOND });
    }

    #[test]
    fn a_grant_that_is_found_too_late_is_asked_for_again() {
        let mut wait = wait(None);
        wait.answered(Reply::Unclear, Duration::ZERO, SECOND, 0);
        assert!(asks(wait.read_back(Some(Token::new(7)), SECOND * 30, 0)));
        let late = wait.answered(Reply::Granted(Token::new(7)), SECOND * 30, SECOND * 31, 0);
        assert_eq!(late, Next::Granted { token: Token::new(7), sent: SECOND * 30 });
    }

    #[test]
    fn a_store_that_was_not_asked_is_not_read_back() {
        let mut wait = wait(None);
        let next = wait.answered(Reply::Unasked, Duration::ZERO, Duration::ZERO, 0);
        assert_eq!(next, Next::Wait { until: SECOND });
        assert_eq!(wait.answered(Reply::Refused, SECOND, SECOND, 0), Next::GiveUp(Why::Refused));
    }
}
