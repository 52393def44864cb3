//! The decision about a failed attempt, and the schedule of decisions.

use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;

use crate::compiled::Compiled;
use crate::{Class, Failure, Policy, micros};

/// The history of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SoFar {
    /// The attempt that has just failed: the number of attempts so far, the first included.
    pub attempt: Attempt,
    /// The time since the start of the first attempt.
    pub elapsed: Duration,
    /// The previous delay; zero if there was none.
    pub last_delay: Duration,
    /// Whether the credentials have been refreshed.
    pub refreshed: bool,
    /// The caller's own deadline, on the same clock as `elapsed`. The earlier of it and the policy's deadline
    /// applies.
    pub deadline: Option<Duration>,
}

impl SoFar {
    /// Creates a history of this many attempts; no time has passed and nothing was refreshed.
    #[inline]
    pub fn after(attempts: u32) -> Self {
        Self { attempt: Attempt::new(attempts), ..Self::default() }
    }
}

/// The decision about a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Decision {
    /// Wait, then make another attempt.
    Retry {
        /// The delay.
        after: Duration,
    },
    /// Refresh the credentials, then make another attempt at once.
    Refresh,
    /// Do not retry: pass the conflict to a person or program that can resolve it.
    HandOff,
    /// Do not retry, for this reason.
    GiveUp(GiveUpReason),
}

/// The reason why a policy does not grant another attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GiveUpReason {
    /// The failure will not pass by itself, or the operation must not be repeated.
    Permanent,
    /// All attempts are used up.
    Exhausted,
    /// The time left before the deadline is too short for the next wait.
    Deadline,
    /// The server asked for a longer wait than the policy's limit.
    RetryAfter,
}

impl GiveUpReason {
    /// Returns the word used in output, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Exhausted => "exhausted",
            Self::Deadline => "deadline",
            Self::RetryAfter => "retry_after_too_long",
        }
    }
}

impl Decision {
    /// Returns the word used in output, logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Refresh => "refresh",
            Self::HandOff => "hand_off",
            Self::GiveUp(reason) => reason.name(),
        }
    }

    /// Returns the delay before the next attempt, if the decision is to wait and retry.
    #[inline]
    pub const fn delay(&self) -> Option<Duration> {
        match self {
            Self::Retry { after } => Some(*after),
            _ => None,
        }
    }
}

impl Compiled {
    /// Decides whether and when to make another attempt. No other function computes a delay.
    ///
    /// `roll` is a number that the caller drew uniformly from all of `u32`. Equal arguments give equal
    /// results.
    #[inline]
    pub fn decide(&self, so_far: &SoFar, failure: &Failure, roll: u32) -> Decision {
        // Most failures have no further properties, and the table then contains the result.
        let is_timed = self.deadline_us.is_some() || so_far.deadline.is_some();
        if failure.is_plain()
            && !is_timed
            && so_far.attempt.get() < self.attempts
            && let Some(window) = self.tabled_window(so_far.attempt)
        {
            return Decision::Retry { after: window.pick(roll) };
        }
        self.decide_in_full(so_far, failure, roll)
    }

    #[inline(never)]
    fn decide_in_full(&self, so_far: &SoFar, failure: &Failure, roll: u32) -> Decision {
        match failure.class() {
            Class::Permanent => return Decision::GiveUp(GiveUpReason::Permanent),
            Class::Conflict => return Decision::HandOff,
            _ if !failure.is_repeatable() => return Decision::GiveUp(GiveUpReason::Permanent),
            _ => {}
        }
        if so_far.attempt.get() >= self.attempts {
            return Decision::GiveUp(GiveUpReason::Exhausted);
        }
        let left_us = self.left_us(so_far);
        if left_us == 0 {
            return Decision::GiveUp(GiveUpReason::Deadline);
        }
        if failure.class() == Class::Unauthorized && !so_far.refreshed {
            return Decision::Refresh;
        }
        let Some(window) = self.window_for(so_far.attempt, so_far.last_delay, failure) else {
            return Decision::GiveUp(GiveUpReason::RetryAfter);
        };
        match window.cut(left_us) {
            Some(window) => Decision::Retry { after: window.pick(roll) },
            None => Decision::GiveUp(GiveUpReason::Deadline),
        }
    }

    /// Returns the time left until the deadline; `u64::MAX` without a deadline.
    #[inline]
    fn left_us(&self, so_far: &SoFar) -> u64 {
        match (self.deadline_us, so_far.deadline) {
            (None, None) => u64::MAX,
            (own, callers) => left_until(own, callers, so_far.elapsed),
        }
    }
}

/// Returns the time left until the earlier of two deadlines. Not inlined, so that calls without a deadline
/// stay fast.
#[inline(never)]
fn left_until(own_us: Option<u64>, callers: Option<Duration>, elapsed: Duration) -> u64 {
    let own_us = own_us.unwrap_or(u64::MAX);
    let deadline_us = callers.map_or(own_us, |callers| micros::saturating(callers).min(own_us));
    deadline_us.saturating_sub(micros::saturating(elapsed))
}

/// The number of an attempt; the first is 1.
///
/// ```
/// use holdoff_policy::Attempt;
///
/// assert_eq!(Attempt::FIRST.get(), 1);
/// assert_eq!(Attempt::FIRST.next(), Attempt::new(2));
/// assert_eq!(Attempt::new(0), Attempt::FIRST, "there is no attempt before the first");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attempt(NonZeroU32);

impl Attempt {
    /// The first attempt.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// Creates the attempt with this number; 0 becomes the first attempt.
    #[inline]
    pub const fn new(number: u32) -> Self {
        match NonZeroU32::new(number) {
            Some(number) => Self(number),
            None => Self::FIRST,
        }
    }

    /// Returns the number, at least 1.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the next attempt; saturates at `u32::MAX`.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number of attempts before this attempt.
    #[inline]
    pub(crate) const fn index(self) -> u32 {
        self.0.get() - 1
    }
}

impl Default for Attempt {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The delays of one operation whose every attempt fails at once, each drawn with a fresh roll.
///
/// Created by [`Policy::schedule`]. It calls [`decide`](crate::Compiled::decide), so the deadline applies
/// too.
#[derive(Clone, Debug)]
pub struct Schedule<'a, R> {
    policy: &'a Policy,
    so_far: SoFar,
    roll: R,
}

impl Policy {
    /// Returns the delays of one operation that keeps failing; `roll` draws the random numbers.
    ///
    /// ```
    /// use holdoff_policy::Policy;
    ///
    /// let policy = Policy::preset("proposal").unwrap();
    /// let shortest: Vec<_> = policy.schedule(|| 0).map(|delay| delay.as_millis()).collect();
    /// assert_eq!(shortest, [10, 20, 40, 80, 160, 320]);
    /// ```
    pub fn schedule<R: FnMut() -> u32>(&self, roll: R) -> Schedule<'_, R> {
        Schedule { policy: self, so_far: SoFar::default(), roll }
    }
}

impl<R: FnMut() -> u32> Iterator for Schedule<'_, R> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.policy.decide(&self.so_far, &Failure::transient(), (self.roll)()).delay()?;
        self.so_far.attempt = self.so_far.attempt.next();
        self.so_far.elapsed = self.so_far.elapsed.saturating_add(delay);
        self.so_far.last_delay = delay;
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Beyond, Contention, Growth, Jitter, Policy, PolicyBuilder, RetryAfter};

    const SECOND: Duration = Duration::from_secs(1);

    fn constant(jitter: Jitter) -> PolicyBuilder {
        Policy::builder(Growth::constant(SECOND)).cap(SECOND * 10).jitter(jitter).attempts(3)
    }

    fn window(policy: &Policy, so_far: &SoFar, failure: &Failure) -> (Duration, Duration) {
        let at = |roll| policy.decide(so_far, failure, roll).delay().expect("a retry");
        (at(0), at(u32::MAX))
    }

    #[test]
    fn decisions_have_the_words_of_output_logs_and_metrics() {
        let retry = Decision::Retry { after: Duration::ZERO };
        let names = [retry, Decision::Refresh, Decision::HandOff].map(|decision| decision.name());
        assert_eq!(names, ["retry", "refresh", "hand_off"]);
        let reasons = [
            (GiveUpReason::Permanent, "permanent"),
            (GiveUpReason::Exhausted, "exhausted"),
            (GiveUpReason::Deadline, "deadline"),
            (GiveUpReason::RetryAfter, "retry_after_too_long"),
        ];
        for (reason, name) in reasons {
            assert_eq!(Decision::GiveUp(reason).name(), name);
        }
    }

    #[test]
    fn the_table_and_the_full_decision_agree() {
        let mut rng = fastrand::Rng::with_seed(3);
        for policy in crate::PRESETS.iter().filter_map(|(name, _)| Policy::preset(name)) {
            for _ in 0..2000 {
                let so_far = SoFar { refreshed: rng.bool(), ..SoFar::after(rng.u32(0..12)) };
                let failure = Failure::new(Class::ALL[rng.usize(0..8)]).with_contenders(rng.u32(0..2));
                let roll = rng.u32(..);
                let in_full = policy.decide_in_full(&so_far, &failure, roll);
                assert_eq!(policy.decide(&so_far, &failure, roll), in_full, "{so_far:?} {failure:?}");
            }
        }
    }

    #[test]
    fn permanent_and_conflict_are_never_retried() {
        let policy = constant(Jitter::None).build().unwrap();
        let decide = |class| policy.decide(&SoFar::default(), &Failure::new(class), 0);
        assert_eq!(decide(Class::Permanent), Decision::GiveUp(GiveUpReason::Permanent));
        assert_eq!(decide(Class::Conflict), Decision::HandOff);
    }

    #[test]
    fn attempts_include_the_first() {
        let policy = constant(Jitter::None).build().unwrap();
        let decide = |attempts| policy.decide(&SoFar::after(attempts), &Failure::transient(), 0);
        assert_eq!(decide(2), Decision::Retry { after: SECOND });
        assert_eq!(decide(3), Decision::GiveUp(GiveUpReason::Exhausted));
        assert_eq!(decide(u32::MAX), Decision::GiveUp(GiveUpReason::Exhausted));
        let second = Attempt::FIRST.next();
        assert_eq!((second.to_string().as_str(), second.next().index()), ("2", 2));
    }

    #[test]
    fn the_first_401_refreshes_and_the_second_backs_off() {
        let policy = constant(Jitter::None).build().unwrap();
        let unauthorized = Failure::new(Class::Unauthorized);
        assert_eq!(policy.decide(&SoFar::default(), &unauthorized, 0), Decision::Refresh);
        let refreshed = SoFar { refreshed: true, ..SoFar::after(2) };
        assert_eq!(policy.decide(&refreshed, &unauthorized, 0), Decision::Retry { after: SECOND });
        assert_eq!(
            policy.decide(&SoFar::after(3), &unauthorized, 0),
            Decision::GiveUp(GiveUpReason::Exhausted)
        );
    }

    #[test]
    fn the_deadline_cuts_the_window_and_rejects_a_window_beyond_it() {
        let policy = constant(Jitter::Equal).deadline(SECOND * 5).build().unwrap();
        let at = |elapsed| SoFar { elapsed, ..SoFar::default() };
        let transient = Failure::transient();
        let half = SECOND / 2;
        assert_eq!(window(&policy, &at(Duration::ZERO), &transient), (half, SECOND));
        let cut = Duration::from_micros(799_999);
        assert_eq!(window(&policy, &at(SECOND * 4 + SECOND / 5), &transient), (half, cut));
        let before_it = Duration::from_micros(999_999);
        assert_eq!(window(&policy, &at(SECOND * 4), &transient), (half, before_it));
        let too_late = policy.decide(&at(SECOND * 4 + SECOND / 4), &transient, 0);
        assert_eq!(too_late, Decision::GiveUp(GiveUpReason::Deadline));
        assert_eq!(
            policy.decide(&at(Duration::MAX), &transient, 0),
            Decision::GiveUp(GiveUpReason::Deadline)
        );
    }

    /// If the window were cut repeatedly at a shrinking remainder, a burst of attempts at the deadline would
    /// result.
    #[test]
    fn there_is_no_burst_at_the_deadline() {
        let builder =
            Policy::builder(Growth::constant(SECOND)).jitter(Jitter::Full).attempts(Policy::UNLIMITED);
        let policy = builder.deadline(SECOND * 10).build().unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let (mut elapsed, mut late) = (Duration::ZERO, 0);
            for delay in policy.schedule(|| rng.u32(..)).take(1000) {
                elapsed += delay;
                assert!(elapsed < SECOND * 10);
                late += u32::from(elapsed > SECOND * 99 / 10);
            }
            assert!(late <= 1, "{late} attempts in the last tenth of a second");
        }
    }

    #[test]
    fn an_operation_that_is_not_repeatable_is_not_retried() {
        let policy = constant(Jitter::None).build().unwrap();
        let failure = Failure::transient().not_repeatable();
        assert_eq!(policy.decide(&SoFar::default(), &failure, 0), Decision::GiveUp(GiveUpReason::Permanent));
    }

    #[test]
    fn the_callers_deadline_counts_if_it_is_earlier() {
        let policy = constant(Jitter::None).deadline(SECOND * 5).build().unwrap();
        let decide = |deadline| {
            let so_far = SoFar { elapsed: SECOND * 3, deadline: Some(deadline), ..SoFar::default() };
            policy.decide(&so_far, &Failure::transient(), 0)
        };
        assert_eq!(decide(SECOND * 4), Decision::GiveUp(GiveUpReason::Deadline));
        assert_eq!(decide(SECOND * 9), Decision::Retry { after: SECOND });
    }

    #[test]
    fn retry_after_is_a_floor_with_a_spread_exempt_from_the_cap() {
        let spread = RetryAfter { spread: SECOND * 5, ..RetryAfter::default() };
        let policy = constant(Jitter::Full).retry_after(spread).build().unwrap();
        let after = |wait| window(&policy, &SoFar::default(), &Failure::transient().with_retry_after(wait));
        assert_eq!(after(SECOND * 120), (SECOND * 120, SECOND * 125));
        assert_eq!(after(Duration::ZERO), (Duration::ZERO, SECOND * 5));
    }

    #[test]
    fn a_retry_after_inside_the_own_window_cuts_it_from_below() {
        let policy = constant(Jitter::Full).build().unwrap();
        let failure = Failure::transient().with_retry_after(SECOND / 2);
        assert_eq!(window(&policy, &SoFar::default(), &failure), (SECOND / 2, SECOND));
        let policy = constant(Jitter::Equal).build().unwrap();
        let earlier = Failure::transient().with_retry_after(SECOND / 4);
        assert_eq!(window(&policy, &SoFar::default(), &earlier), (SECOND / 2, SECOND), "it never shortens");
    }

    #[test]
    fn a_retry_after_beyond_the_limit_is_waited_for_refused_or_clipped() {
        let decide = |beyond| {
            let rule = RetryAfter { limit: SECOND * 60, beyond, ..RetryAfter::default() };
            let policy = constant(Jitter::None).retry_after(rule).build().unwrap();
            policy.decide(&SoFar::default(), &Failure::transient().with_retry_after(SECOND * 90), 0)
        };
        assert_eq!(decide(Beyond::Wait), Decision::Retry { after: SECOND * 90 });
        assert_eq!(decide(Beyond::GiveUp), Decision::GiveUp(GiveUpReason::RetryAfter));
        assert_eq!(decide(Beyond::Clip), Decision::Retry { after: SECOND * 60 });
    }

    #[test]
    fn contention_replaces_the_own_window_and_retry_after_outranks_both() {
        let contention = Contention { slot: Duration::from_millis(15), limit: SECOND };
        let policy = constant(Jitter::None).contention(contention).build().unwrap();
        let contended = Failure::new(Class::Contended);
        let at = |failure: &Failure| window(&policy, &SoFar::default(), failure);
        assert_eq!(at(&contended), (SECOND, SECOND));
        assert_eq!(at(&contended.with_contenders(0)), (SECOND, SECOND), "the number is unknown");
        assert_eq!(at(&contended.with_contenders(10)), (Duration::ZERO, Duration::from_millis(150)));
        assert_eq!(at(&contended.with_contenders(u32::MAX)), (Duration::ZERO, SECOND));
        let hinted = contended.with_contenders(10).with_retry_after(SECOND * 2);
        assert_eq!(at(&hinted), (SECOND * 2, SECOND * 2));
    }

    #[test]
    fn decorrelated_grows_from_the_last_delay() {
        let policy = constant(Jitter::Decorrelated).build().unwrap();
        let after = |last_delay| {
            let so_far = SoFar { last_delay, ..SoFar::default() };
            window(&policy, &so_far, &Failure::transient())
        };
        assert_eq!(after(Duration::ZERO), (SECOND, SECOND * 3));
        assert_eq!(after(SECOND * 2), (SECOND, SECOND * 6));
        assert_eq!(after(Duration::MAX), (SECOND, SECOND * 10));
        assert_eq!(policy.schedule(|| u32::MAX).take(9).collect::<Vec<_>>(), [SECOND * 3, SECOND * 9]);
    }
}
