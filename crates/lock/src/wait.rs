//! Waiting for a lock, as a pure core. Its inputs are events, its outputs are actions.
//!
//! ```text
//!   request ──granted──▶ done      refused: wait for the first of
//!    ▲ │                             notified: reserved for this nonce   request at once         not an attempt
//!    │ └─unknown outcome─▶ read      notified: it may be free            request a little later  not an attempt
//!    │        back by nonce │        the lease expires                   request a little later  not an attempt
//!    └──────────────────────┴─────── the backoff ends                    request                 an attempt
//!                                    the deadline                        give up
//! ```
//!
//! Only attempts count against the policy. Other requests are bounded too: after [`MAX_UNCOUNTED`] of them, only the
//! backoff leads to another request.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Attempt, Class, Decision, Failure, GiveUpReason, Policy, SoFar};

use crate::notify::Notification;
use crate::validity;
use crate::{Nonce, Token};

/// The maximum number of requests between two attempts.
const MAX_UNCOUNTED: u32 = 16;
/// The shortest wait. It keeps any policy from a busy loop.
const MIN_WAIT: Duration = Duration::from_millis(1);
/// How much longer the contender counts as waiting than the time within which it asks again.
const GRACE: Duration = Duration::from_secs(1);
/// The share of the delay window for each waiter when all may ask at once.
const SLOT_US: u64 = 5_000;
/// The number of waiters from which the policy's contention-aware backoff applies: the more waiters, the less often the
/// contender asks. With fewer waiters the plain backoff does better.
const MANY_WAITERS: u32 = 8;
const MIN_SPREAD_US: u64 = 20_000;
const MAX_SPREAD_US: u64 = 1_000_000;

/// One acquisition in progress.
#[derive(Clone, Debug)]
pub(crate) struct WaitState {
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
    check_at: Option<Duration>,
    /// Whether the remaining time allows no other attempt. Only a notification, or the expiry of the lease, leads to a
    /// request.
    is_last: bool,
    uncounted: u32,
    waiting: u32,
    /// The time since which there may be a grant whose response was lost.
    unknown_since: Option<Duration>,
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
pub(crate) enum StoreReply {
    /// The lock was granted.
    Granted(Token),
    /// The lock was refused: the time until it is free, if known, and the number of waiters.
    Held { free_in: Option<Duration>, waiting: u32 },
    /// There was no clear response. The lock may have been granted.
    Unknown,
    /// The request was not sent, but a later one may be.
    NotSent,
    /// The store will never grant the lock.
    Rejected,
}

/// The next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitAction {
    /// Ask the store, and state how long this contender counts as waiting.
    TryAcquire { waits_for: Duration },
    /// Ask the store whether the nonce holds the lock.
    ReadBack,
    /// Wait until this time, or until a notification.
    Wait { until: Duration },
    /// The lock is held. Its lease counts from `sent`.
    Granted { token: Token, sent: Duration },
    /// Give up.
    GiveUp(WaitFailure),
}

/// The reason for giving up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitFailure {
    /// All attempts are used.
    Exhausted,
    /// The deadline has passed.
    Deadline,
    /// The store rejected the request for good.
    Rejected,
}

impl WaitState {
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
            check_at: None,
            is_last: false,
            uncounted: 0,
            waiting: 0,
            unknown_since: None,
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
    pub(crate) fn first_action(&self, now: Duration) -> WaitAction {
        self.request(now)
    }

    /// Handles the result of the request that was sent at `sent`.
    pub(crate) fn on_reply(
        &mut self,
        reply: StoreReply,
        sent: Duration,
        now: Duration,
        roll: u32,
    ) -> WaitAction {
        match reply {
            // A grant whose response took as long as the lease is not valid. The nonce makes a repeated request safe.
            StoreReply::Granted(token) => self.granted(token, sent, now, roll),
            StoreReply::Held { free_in, waiting } => {
                self.waiting = waiting;
                let until = free_in.map(|free_in| now.saturating_add(free_in));
                self.check_at = until.map(|until| until.saturating_add(self.spread_delay(roll)));
                let contenders = if waiting < MANY_WAITERS { 0 } else { waiting };
                self.back_off(&Failure::new(Class::Contended).with_contenders(contenders), now, roll)
            }
            StoreReply::Unknown => {
                // Keep the earliest: the lease of any of the requests with unknown outcome did not start before it.
                self.unknown_since = Some(self.unknown_since.map_or(sent, |since| since.min(sent)));
                WaitAction::ReadBack
            }
            StoreReply::NotSent => self.back_off(&Failure::transient().local(), now, roll),
            StoreReply::Rejected => WaitAction::GiveUp(WaitFailure::Rejected),
        }
    }

    /// Handles the result of a read-back: the token, or `None` if the nonce does not hold the lock or there was no
    /// response.
    pub(crate) fn on_read_back(&mut self, found: Option<Token>, now: Duration, roll: u32) -> WaitAction {
        match (found, self.unknown_since) {
            (Some(token), Some(since)) => self.granted(token, since, now, roll),
            _ => self.back_off(&Failure::transient(), now, roll),
        }
    }

    /// Injects a defect: earlier requests without a clear response do not count.
    #[cfg(test)]
    pub(crate) fn forget_unknown(&mut self) {
        self.unknown_since = None;
    }

    fn granted(&mut self, token: Token, sent: Duration, now: Duration, roll: u32) -> WaitAction {
        if validity::valid_until(sent, self.lease) > now {
            return WaitAction::Granted { token, sent };
        }
        if self.is_uncounted_allowed() {
            return self.request_uncounted(now);
        }
        self.back_off(&Failure::transient(), now, roll)
    }

    /// Handles a notification.
    pub(crate) fn on_notification(
        &mut self,
        notification: Notification,
        now: Duration,
        roll: u32,
    ) -> WaitAction {
        match notification {
            Notification::ReservedFor(nonce) if nonce == self.nonce && self.is_uncounted_allowed() => {
                return self.request_uncounted(now);
            }
            Notification::MayBeFree => {
                let soon = now.saturating_add(self.spread_delay(roll));
                self.check_at = Some(self.check_at.map_or(soon, |check_at| check_at.min(soon)));
            }
            Notification::ReservedFor(_) | Notification::None => {}
        }
        self.pause(now)
    }

    /// Handles the end of a wait.
    pub(crate) fn timer_fired(&mut self, now: Duration) -> WaitAction {
        let has_come = |moment: Option<Duration>| moment.is_some_and(|moment| moment <= now);
        if has_come(self.deadline) {
            return WaitAction::GiveUp(WaitFailure::Deadline);
        }
        if has_come(self.attempt_at) {
            self.attempt_at = None;
            self.check_at = None;
            self.uncounted = 0;
            self.attempt = self.attempt.next();
            return self.request(now);
        }
        if has_come(self.check_at) && self.is_uncounted_allowed() {
            return self.request_uncounted(now);
        }
        self.pause(now)
    }

    fn request(&self, now: Duration) -> WaitAction {
        WaitAction::TryAcquire { waits_for: self.waits_for(now) }
    }

    fn request_uncounted(&mut self, now: Duration) -> WaitAction {
        self.check_at = None;
        self.uncounted += 1;
        self.request(now)
    }

    fn is_uncounted_allowed(&self) -> bool {
        self.uncounted < MAX_UNCOUNTED
    }

    /// Returns the time within which the contender certainly asks again.
    fn waits_for(&self, now: Duration) -> Duration {
        let contention = self.policy.contention().map_or(Duration::ZERO, |contention| contention.limit);
        let longest = self.policy.cap().max(contention);
        let left = self.deadline.map_or(longest, |deadline| deadline.saturating_sub(now));
        longest.min(left).saturating_add(GRACE)
    }

    /// Draws the next backoff, unless one is still running: a wake-up does not restart it.
    fn back_off(&mut self, failure: &Failure, now: Duration, roll: u32) -> WaitAction {
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
                self.attempt_at = Some(now.saturating_add(after.max(MIN_WAIT)));
                self.drawn = Some(Backoff { after: self.attempt, delay: after });
                self.pause(now)
            }
            Decision::GiveUp(GiveUpReason::Deadline) => {
                self.is_last = true;
                self.pause(now)
            }
            _ => WaitAction::GiveUp(WaitFailure::Exhausted),
        }
    }

    fn pause(&self, now: Duration) -> WaitAction {
        let check_at = self.check_at.filter(|_| self.is_uncounted_allowed());
        let soonest = [self.attempt_at, check_at, self.deadline].into_iter().flatten().min();
        match soonest {
            Some(until) if self.deadline != Some(until) || until > now => WaitAction::Wait { until },
            // Without a deadline there is always another attempt, or the policy has given up before.
            Some(_) | None => WaitAction::GiveUp(WaitFailure::Deadline),
        }
    }

    /// Returns a small random delay from a window that is wide enough for all waiters, which were woken together.
    fn spread_delay(&self, roll: u32) -> Duration {
        let width_us = (u64::from(self.waiting) * SLOT_US).clamp(MIN_SPREAD_US, MAX_SPREAD_US);
        // Derive another number than the one that the backoff is drawn with.
        let share = u64::from(roll.wrapping_mul(0x9E37_79B1));
        Duration::from_micros((width_us * share) >> 32).max(MIN_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use holdoff_policy::{Contention, Growth, Jitter};
    use uuid::Uuid;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINE: Nonce = Nonce::new(Uuid::from_u128(1));
    const OTHERS: Nonce = Nonce::new(Uuid::from_u128(2));
    const HELD: StoreReply = StoreReply::Held { free_in: Some(Duration::from_secs(30)), waiting: 3 };

    fn wait(deadline: Option<Duration>) -> WaitState {
        let growth = Growth::constant(SECOND);
        let policy = Policy::builder(growth).jitter(Jitter::None).attempts(3).build().unwrap();
        WaitState::new(MINE, Arc::new(policy), SECOND * 30, deadline, Duration::ZERO)
    }

    fn is_request(next: WaitAction) -> bool {
        matches!(next, WaitAction::TryAcquire { .. })
    }

    #[test]
    fn each_expired_backoff_is_an_attempt_and_the_last_one_gives_up() {
        let mut wait = wait(None);
        assert!(is_request(wait.first_action(Duration::ZERO)));
        for attempt in 1..3 {
            let now = SECOND * (attempt - 1);
            let next = wait.on_reply(HELD, now, now, 0);
            assert_eq!(next, WaitAction::Wait { until: now + SECOND });
            let drawn = Backoff { after: Attempt::new(attempt), delay: SECOND };
            assert_eq!((wait.drawn(), wait.drawn()), (Some(drawn), None));
            assert!(is_request(wait.timer_fired(now + SECOND)));
        }
        assert_eq!(wait.attempts(), 3);
        assert_eq!(
            wait.on_reply(HELD, SECOND * 2, SECOND * 2, 0),
            WaitAction::GiveUp(WaitFailure::Exhausted)
        );
    }

    #[test]
    fn a_notification_is_not_an_attempt_and_does_not_restart_the_backoff() {
        let mut wait = wait(None);
        let until = wait.on_reply(HELD, Duration::ZERO, Duration::ZERO, 0);
        for _ in 0..MAX_UNCOUNTED {
            assert!(is_request(wait.on_notification(Notification::ReservedFor(MINE), SECOND / 2, 0)));
            assert_eq!(wait.on_reply(HELD, SECOND / 2, SECOND / 2, 0), until);
        }
        for beyond in [Notification::ReservedFor(MINE), Notification::MayBeFree] {
            assert_eq!(wait.on_notification(beyond, SECOND / 2, 0), until);
        }
        assert_eq!(wait.attempts(), 1);
    }

    #[test]
    fn a_backoff_that_ended_during_a_request_leads_to_an_attempt() {
        let mut wait = wait(None);
        let until = wait.on_reply(HELD, Duration::ZERO, Duration::ZERO, 0);
        assert!(is_request(wait.on_notification(Notification::ReservedFor(MINE), SECOND / 2, 0)));
        assert_eq!(wait.on_reply(HELD, SECOND / 2, SECOND * 2, 0), until);
        assert!(is_request(wait.timer_fired(SECOND * 2)));
        assert_eq!((wait.attempts(), wait.waited(SECOND * 2)), (2, SECOND * 2));
    }

    #[test]
    fn the_policy_knows_the_last_delay_and_many_waiters() {
        let contention = Contention { slot: SECOND / 10, limit: SECOND };
        let policy = Policy::builder(Growth::constant(SECOND)).jitter(Jitter::Decorrelated);
        let policy = Arc::new(policy.cap(SECOND * 10).contention(contention).build().unwrap());
        let wait = || WaitState::new(MINE, policy.clone(), SECOND, None, Duration::ZERO);
        let mut unreachable = wait();
        for (now, delay) in [(0, 3), (3, 9)].map(|(now, delay)| (SECOND * now, SECOND * delay)) {
            unreachable.on_reply(StoreReply::NotSent, now, now, u32::MAX);
            assert_eq!(unreachable.drawn().map(|drawn| drawn.delay), Some(delay));
            unreachable.timer_fired(now + delay);
        }
        for (waiting, delay) in
            [(MANY_WAITERS - 1, SECOND), (MANY_WAITERS, Duration::ZERO), (MANY_WAITERS + 1, Duration::ZERO)]
        {
            let mut contended = wait();
            contended.on_reply(
                StoreReply::Held { free_in: None, waiting },
                Duration::ZERO,
                Duration::ZERO,
                0,
            );
            assert_eq!(contended.drawn().map(|drawn| drawn.delay), Some(delay), "{waiting} waiters");
        }
    }

    #[test]
    fn a_reservation_for_another_contender_is_ignored() {
        let mut wait = wait(None);
        let until = wait.on_reply(HELD, Duration::ZERO, Duration::ZERO, 0);
        assert_eq!(wait.on_notification(Notification::ReservedFor(OTHERS), SECOND / 2, 0), until);
        assert_eq!(wait.timer_fired(SECOND / 2), until, "nothing is due yet");
    }

    #[test]
    fn contenders_that_are_notified_together_ask_at_different_times() {
        let at = |waiting, roll| {
            let mut wait = wait(None);
            let held = StoreReply::Held { free_in: None, waiting };
            wait.on_reply(held, Duration::ZERO, Duration::ZERO, 0);
            match wait.on_notification(Notification::MayBeFree, SECOND / 2, roll) {
                WaitAction::Wait { until } => until,
                next => panic!("{next:?}"),
            }
        };
        for (waiting, most) in [(3, SECOND / 50), (80, SECOND * 2 / 5)] {
            let all: std::collections::BTreeSet<_> = (0..100_u32)
                .map(|n| at(waiting, n.wrapping_mul(0x2545_F491)).saturating_sub(SECOND / 2))
                .collect();
            assert!(all.len() > 90, "{} different times", all.len());
            assert!(all.iter().all(|delay| *delay <= most) && *all.last().unwrap() > most / 2);
        }
    }

    #[test]
    fn the_expiry_of_the_lease_leads_to_a_request_that_is_not_an_attempt() {
        let mut wait = wait(None);
        let ends_soon = StoreReply::Held { free_in: Some(SECOND / 4), waiting: 1 };
        let next = wait.on_reply(ends_soon, Duration::ZERO, Duration::ZERO, u32::MAX / 2);
        let WaitAction::Wait { until } = next else { panic!("{next:?}") };
        assert!((SECOND / 4..SECOND / 3).contains(&until), "{until:?}");
        assert!(is_request(wait.timer_fired(until)));
        assert_eq!(wait.attempts(), 1);
    }

    #[test]
    fn requests_between_attempts_are_bounded() {
        let mut wait = wait(None);
        let (mut now, mut asked) = (Duration::ZERO, 0);
        let mut next = wait.first_action(now);
        loop {
            next = match next {
                WaitAction::TryAcquire { .. } => {
                    asked += 1;
                    wait.on_reply(StoreReply::Held { free_in: Some(Duration::ZERO), waiting: 1 }, now, now, 0)
                }
                WaitAction::Wait { until } => {
                    assert!(until > now, "the wait must not be a busy loop");
                    now = until;
                    wait.timer_fired(now)
                }
                WaitAction::GiveUp(why) => break assert_eq!(why, WaitFailure::Exhausted),
                next => panic!("{next:?}"),
            };
        }
        assert_eq!(asked, 3 + 2 * MAX_UNCOUNTED);
    }

    #[test]
    fn a_policy_without_delays_does_not_cause_a_busy_loop() {
        let policy = Policy::builder(Growth::constant(Duration::ZERO)).attempts(Policy::UNLIMITED);
        let policy = Arc::new(policy.build().unwrap());
        let mut wait = WaitState::new(MINE, policy, SECOND, None, Duration::ZERO);
        let held = StoreReply::Held { free_in: None, waiting: 0 };
        assert_eq!(
            wait.on_reply(held, Duration::ZERO, Duration::ZERO, 0),
            WaitAction::Wait { until: MIN_WAIT }
        );
    }

    #[test]
    fn a_contender_waits_for_notifications_until_the_deadline() {
        let mut wait = wait(Some(SECOND / 2));
        assert_eq!(wait.deadline(), Some(SECOND / 2));
        let request = WaitAction::TryAcquire { waits_for: SECOND / 4 + GRACE };
        assert_eq!(wait.first_action(SECOND / 4), request);
        let next = wait.on_reply(HELD, Duration::ZERO, Duration::ZERO, 0);
        assert_eq!(wait.drawn(), None, "the policy's delay ends after the deadline");
        assert_eq!(next, WaitAction::Wait { until: SECOND / 2 });
        assert!(is_request(wait.on_notification(Notification::ReservedFor(MINE), SECOND / 3, 0)));
        wait.on_reply(HELD, SECOND / 3, SECOND / 3, 0);
        let late = WaitAction::GiveUp(WaitFailure::Deadline);
        assert_eq!(wait.on_reply(HELD, SECOND / 3, SECOND / 2, 0), late);
        assert_eq!(wait.timer_fired(SECOND / 2), late);
    }

    #[test]
    fn the_time_that_has_passed_counts_against_the_deadline() {
        let mut wait = wait(Some(SECOND * 6 / 5));
        wait.on_reply(HELD, SECOND * 2 / 5, SECOND * 2 / 5, 0);
        assert_eq!(wait.drawn(), None);
    }

    #[test]
    fn the_validity_of_a_grant_read_back_counts_from_the_first_unknown_request() {
        let mut wait = wait(None);
        assert_eq!(wait.on_reply(StoreReply::Unknown, SECOND, SECOND * 2, 0), WaitAction::ReadBack);
        let WaitAction::Wait { until } = wait.on_read_back(None, SECOND * 2, 0) else {
            panic!("the store cannot be reached")
        };
        assert!(is_request(wait.timer_fired(until)));
        assert_eq!(wait.on_reply(StoreReply::Unknown, until, until, 0), WaitAction::ReadBack);
        let found = wait.on_read_back(Some(Token::new(7)), until, 0);
        assert_eq!(found, WaitAction::Granted { token: Token::new(7), sent: SECOND });
    }

    #[test]
    fn a_grant_that_is_read_back_too_late_is_requested_again() {
        let mut wait = wait(None);
        wait.on_reply(StoreReply::Unknown, Duration::ZERO, SECOND, 0);
        let end = validity::valid_until(Duration::ZERO, SECOND * 30);
        assert!(is_request(wait.clone().on_reply(
            StoreReply::Granted(Token::new(7)),
            Duration::ZERO,
            end,
            0
        )));
        assert!(is_request(wait.on_read_back(Some(Token::new(7)), SECOND * 30, 0)));
        let late = wait.on_reply(StoreReply::Granted(Token::new(7)), SECOND * 30, SECOND * 31, 0);
        assert_eq!(late, WaitAction::Granted { token: Token::new(7), sent: SECOND * 30 });
    }

    #[test]
    fn a_request_that_was_not_sent_is_not_read_back() {
        let mut wait = wait(None);
        let next = wait.on_reply(StoreReply::NotSent, Duration::ZERO, Duration::ZERO, 0);
        assert_eq!(next, WaitAction::Wait { until: SECOND });
        assert_eq!(
            wait.on_reply(StoreReply::Rejected, SECOND, SECOND, 0),
            WaitAction::GiveUp(WaitFailure::Rejected)
        );
    }
}
