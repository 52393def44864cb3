//! A circuit breaker that receives the time as an argument.
//!
//! ```text
//!            too many failures                 cool-down over
//!   closed ────────────────────▶ open ────────────────────────▶ half open
//!     ▲                            ▲                               │   │
//!     │                            └───────── a probe failed ──────┘   │
//!     └──────────────────── enough probes succeeded ───────────────────┘
//! ```
//!
//! A [`Policy`] determines how long the breaker stays open: the first opening waits like the first attempt,
//! the next consecutive opening like the second, with the policy's jitter.

use core::time::Duration;

use crate::{Attempt, Failure, Policy, SoFar};

/// A circuit breaker: stops calls to a dependency that is down, and probes it until it is back.
///
/// The caller passes the time as `now`, a monotonic duration since any fixed moment.
///
/// ```
/// use holdoff_policy::{Admission, Breaker, BreakerOptions};
/// use std::time::Duration;
///
/// let options = BreakerOptions { min_calls: 2, ..BreakerOptions::default() };
/// let mut breaker = Breaker::new(options);
/// let now = Duration::from_secs(100);
/// for _ in 0..2 {
///     let Admission::Admitted(ticket) = breaker.admit(now) else { panic!("closed") };
///     breaker.record(ticket, false, now, 0);
/// }
/// assert!(matches!(breaker.admit(now), Admission::Refused { .. }));
/// ```
#[derive(Clone, Debug)]
pub struct Breaker {
    options: BreakerOptions,
    state: State,
    /// Incremented by every change of state, so that the breaker ignores late reports from before the change.
    era: u64,
    /// The number of consecutive openings without a closing.
    openings: u32,
    last_cool_down: Duration,
    recent: Recent,
}

/// The conditions under which a [`Breaker`] opens and closes.
#[derive(Clone, PartialEq, Debug)]
pub struct BreakerOptions {
    /// The breaker opens when at least this share of the recent calls failed.
    pub failure_ratio: f64,
    /// The breaker never opens on fewer recent calls than this.
    pub min_calls: u32,
    /// The window of the recent calls.
    pub window: Duration,
    /// The number of consecutive successful probes that closes the breaker.
    pub probes: u32,
    /// The cool-down by consecutive openings. The policy's attempts and deadline are ignored.
    pub cool_down: Policy,
}

impl Default for BreakerOptions {
    /// Opens when half of at least 20 calls in 10 s failed; the cool-down is the preset `standard`.
    fn default() -> Self {
        let (window, cool_down) = (Duration::from_secs(10), Policy::standard());
        Self { failure_ratio: 0.5, min_calls: 20, window, probes: 1, cool_down }
    }
}

/// The result of [`Breaker::admit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Make the call, then [record](Breaker::record) its outcome.
    Admitted(Ticket),
    /// Do not make the call.
    Refused {
        /// The time until the breaker admits the next probe.
        retry_in: Duration,
    },
}

/// Identifies the breaker state in which a call was admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    era: u64,
}

/// The state of a [`Breaker`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BreakerState {
    /// Admits all calls.
    Closed,
    /// Admits no calls.
    Open,
    /// Admits single probes.
    HalfOpen,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    Open { until: Duration },
    HalfOpen { succeeded: u32, next_probe: Duration },
}

impl Breaker {
    /// Creates a closed breaker.
    pub fn new(mut options: BreakerOptions) -> Self {
        let recent = Recent::new(options.window);
        // The number of openings is unlimited: neither attempts nor a deadline end the cool-downs.
        options.cool_down = options.cool_down.without_end();
        Self { options, state: State::Closed, era: 0, openings: 0, last_cool_down: Duration::ZERO, recent }
    }

    /// Returns the state.
    pub fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Returns whether a call may be made now.
    pub fn admit(&mut self, now: Duration) -> Admission {
        match self.state {
            State::Closed => {}
            State::Open { until } if now < until => return refused(until, now),
            State::Open { .. } => {
                self.enter(State::HalfOpen { succeeded: 0, next_probe: self.probe_after(now) });
            }
            State::HalfOpen { next_probe, .. } if now < next_probe => return refused(next_probe, now),
            // The previous probe was never reported, so its caller has vanished. Admit another.
            State::HalfOpen { succeeded, .. } => {
                self.state = State::HalfOpen { succeeded, next_probe: self.probe_after(now) };
            }
        }
        Admission::Admitted(Ticket { era: self.era })
    }

    /// Records the outcome of an admitted call. `roll` has an effect only if the outcome opens the breaker.
    pub fn record(&mut self, ticket: Ticket, succeeded: bool, now: Duration, roll: u32) {
        if ticket.era != self.era {
            return;
        }
        match self.state {
            State::Closed => {
                self.recent.count(now, succeeded);
                if self.recent.is_failing(now, &self.options) {
                    self.open(now, roll);
                }
            }
            State::HalfOpen { .. } if !succeeded => self.open(now, roll),
            State::HalfOpen { succeeded: before, .. } if before + 1 >= self.options.probes => {
                self.openings = 0;
                self.last_cool_down = Duration::ZERO;
                self.recent = Recent::new(self.options.window);
                self.enter(State::Closed);
            }
            State::HalfOpen { succeeded: before, .. } => {
                self.state = State::HalfOpen { succeeded: before + 1, next_probe: now };
            }
            State::Open { .. } => {}
        }
    }

    fn open(&mut self, now: Duration, roll: u32) {
        self.openings = self.openings.saturating_add(1);
        self.last_cool_down = self.cool_down(roll);
        self.enter(State::Open { until: now.saturating_add(self.last_cool_down) });
    }

    fn cool_down(&self, roll: u32) -> Duration {
        let policy = &self.options.cool_down;
        let attempt = Attempt::new(self.openings);
        let so_far = SoFar { attempt, last_delay: self.last_cool_down, ..SoFar::default() };
        policy.decide(&so_far, &Failure::transient(), roll).delay().unwrap_or(policy.cap())
    }

    fn probe_after(&self, now: Duration) -> Duration {
        now.saturating_add(self.last_cool_down)
    }

    fn enter(&mut self, state: State) {
        self.era += 1;
        self.state = state;
    }
}

fn refused(until: Duration, now: Duration) -> Admission {
    Admission::Refused { retry_in: until.saturating_sub(now) }
}

/// The calls and failures of the recent window, in ten slices.
#[derive(Clone, Debug)]
struct Recent {
    slice_us: u64,
    slices: [Slice; Self::SLICES],
}

#[derive(Clone, Copy, Default, Debug)]
struct Slice {
    number: u64,
    calls: u32,
    failures: u32,
}

impl Recent {
    const SLICES: usize = 10;

    fn new(window: Duration) -> Self {
        let slice_us = (crate::micros::saturating(window) / Self::SLICES as u64).max(1);
        Self { slice_us, slices: [Slice::default(); Self::SLICES] }
    }

    fn number(&self, now: Duration) -> u64 {
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX - 1);
        // Slice numbers start at 1, so that an unused slice never equals the current slice.
        now_us / self.slice_us + 1
    }

    fn count(&mut self, now: Duration, succeeded: bool) {
        let number = self.number(now);
        let index = usize::try_from(number % Self::SLICES as u64).unwrap_or(0);
        let Some(slice) = self.slices.get_mut(index) else { return };
        if slice.number != number {
            *slice = Slice { number, ..Slice::default() };
        }
        slice.calls = slice.calls.saturating_add(1);
        slice.failures = slice.failures.saturating_add(u32::from(!succeeded));
    }

    fn is_failing(&self, now: Duration, options: &BreakerOptions) -> bool {
        let oldest = self.number(now).saturating_sub(Self::SLICES as u64 - 1);
        let recent = self.slices.iter().filter(|slice| slice.number >= oldest);
        let (calls, failures) = recent.fold((0_u64, 0_u64), |(calls, failures), slice| {
            (calls + u64::from(slice.calls), failures + u64::from(slice.failures))
        });
        #[expect(clippy::cast_precision_loss, reason = "counts of calls within seconds")]
        let share = failures as f64 / calls.max(1) as f64;
        calls >= u64::from(options.min_calls) && failures > 0 && share >= options.failure_ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Growth, Jitter};

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker(probes: u32) -> Breaker {
        let cool_down = Policy::builder(Growth::exponential(SECOND, 2.0))
            .jitter(Jitter::None)
            .cap(SECOND * 4)
            .attempts(3)
            .build()
            .unwrap();
        Breaker::new(BreakerOptions {
            failure_ratio: 0.5,
            min_calls: 4,
            window: SECOND * 10,
            probes,
            cool_down,
        })
    }

    fn call(breaker: &mut Breaker, now: Duration, succeeded: bool) -> bool {
        match breaker.admit(now) {
            Admission::Admitted(ticket) => {
                breaker.record(ticket, succeeded, now, 0);
                true
            }
            Admission::Refused { .. } => false,
        }
    }

    fn opened(probes: u32) -> Breaker {
        let mut breaker = breaker(probes);
        (0..4).for_each(|_| assert!(call(&mut breaker, SECOND, false)));
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker
    }

    #[test]
    fn a_breaker_opens_at_the_ratio_after_enough_calls() {
        let mut breaker = breaker(1);
        (0..3).for_each(|_| assert!(call(&mut breaker, SECOND, false)));
        assert_eq!(breaker.state(), BreakerState::Closed, "three calls are too few to judge by");
        call(&mut breaker, SECOND, true);
        assert_eq!(breaker.state(), BreakerState::Open, "three of four failed");
    }

    #[test]
    fn failures_outside_the_window_do_not_count() {
        let mut breaker = breaker(1);
        (0..3).for_each(|_| assert!(call(&mut breaker, SECOND, false)));
        for _ in 0..4 {
            assert!(call(&mut breaker, SECOND * 12, true));
        }
        assert!(call(&mut breaker, SECOND * 12, false));
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn an_open_breaker_refuses_until_the_cool_down_ends_then_admits_one_probe() {
        let mut breaker = opened(1);
        assert_eq!(breaker.admit(SECOND * 3 / 2), Admission::Refused { retry_in: SECOND / 2 });
        assert!(matches!(breaker.admit(SECOND * 2), Admission::Admitted(_)));
        assert!(matches!(breaker.admit(SECOND * 2), Admission::Refused { .. }), "one probe at a time");
    }

    #[test]
    fn a_successful_probe_closes_the_breaker() {
        let mut breaker = opened(1);
        assert!(call(&mut breaker, SECOND * 2, true));
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(call(&mut breaker, SECOND * 2, false), "a closed breaker counts from zero");
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn failed_probes_lengthen_the_cool_down_up_to_the_cap() {
        let mut breaker = opened(1);
        let mut now = SECOND;
        for cool_down in [1, 2, 4, 4] {
            let Admission::Refused { retry_in } = breaker.admit(now) else { panic!("open") };
            assert_eq!(retry_in, SECOND * cool_down);
            now += retry_in;
            assert!(call(&mut breaker, now, false));
        }
    }

    #[test]
    fn the_clock_may_start_at_any_time() {
        for epoch in [Duration::ZERO, Duration::from_secs(365 * 86_400), Duration::from_secs(1_800_000_000)] {
            let mut breaker = breaker(1);
            for _ in 0..100 {
                assert!(call(&mut breaker, epoch + SECOND, true));
            }
            for _ in 0..4 {
                assert!(call(&mut breaker, epoch + SECOND * 3600, false));
            }
            assert_eq!(breaker.state(), BreakerState::Open, "from {epoch:?}");
        }
    }

    #[test]
    fn a_probe_that_never_reports_is_replaced() {
        let mut breaker = opened(1);
        assert!(matches!(breaker.admit(SECOND * 2), Admission::Admitted(_)));
        assert!(call(&mut breaker, SECOND * 3, true));
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn several_probes_can_be_required() {
        let mut breaker = opened(2);
        assert!(call(&mut breaker, SECOND * 2, true));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(call(&mut breaker, SECOND * 2, true));
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn late_reports_from_before_a_change_are_ignored() {
        let mut breaker = breaker(1);
        let Admission::Admitted(late) = breaker.admit(SECOND) else { panic!("closed") };
        (0..4).for_each(|_| assert!(call(&mut breaker, SECOND, false)));
        breaker.record(late, true, SECOND, 0);
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(matches!(breaker.admit(SECOND * 2), Admission::Admitted(_)));
        breaker.record(late, true, SECOND * 2, 0);
        assert_eq!(breaker.state(), BreakerState::HalfOpen, "the late result does not belong to the probe");
    }
}
