//! The clock of a node.

use serde::{Deserialize, Serialize};

const MILLION: i128 = 1_000_000;

/// The deviation of a node's clock from true time, from the moment it is [set](super::World::set_skew).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skew {
    /// The offset, positive if the clock is ahead. The clock jumps when the offset changes.
    pub offset_us: i64,
    /// The drift in parts per million, positive if the clock is fast. Limited to at least −900 000.
    pub drift_ppm: i32,
}

impl Skew {
    /// The time that a correct clock shows at true time 0: a thousand million seconds.
    ///
    /// It is far enough above zero that a clock can be behind by years and still advance.
    pub const EPOCH_US: u64 = 1_000_000_000_000_000;

    /// Returns the advance of the clock in a million microseconds of true time.
    fn rate(self) -> i128 {
        MILLION + i128::from(self.drift_ppm.max(-900_000))
    }
}

/// A clock with its past drift and its current skew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    skew: Skew,
    /// The true time at which the skew was set.
    set_at_us: u64,
    /// The time that the clock showed then, without the offset; it includes earlier drifts.
    set_to_us: i128,
}

impl Default for Clock {
    fn default() -> Self {
        Self { skew: Skew::default(), set_at_us: 0, set_to_us: i128::from(Skew::EPOCH_US) }
    }
}

impl Clock {
    /// Sets another skew: the offset is a jump, the drift begins now.
    pub(super) fn set(&mut self, skew: Skew, true_us: u64) {
        let set_to_us = self.drifted_us(true_us);
        *self = Self { skew, set_at_us: true_us, set_to_us };
    }

    /// Returns the time that the clock shows at this true time. A clock that is behind by more than its epoch shows 0.
    pub(super) fn local_us(&self, true_us: u64) -> u64 {
        let local = self.drifted_us(true_us) + i128::from(self.skew.offset_us);
        u64::try_from(local.max(0)).unwrap_or(u64::MAX)
    }

    /// Returns the true time in which the clock advances by this much, rounded up: no timer fires early.
    pub(super) fn true_span_us(&self, local_us: u64) -> u64 {
        let rate = self.skew.rate();
        let span = (i128::from(local_us) * MILLION + rate - 1) / rate;
        u64::try_from(span).unwrap_or(u64::MAX)
    }

    fn drifted_us(&self, true_us: u64) -> i128 {
        let since_us = i128::from(true_us.saturating_sub(self.set_at_us));
        self.set_to_us + since_us * self.skew.rate() / MILLION
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimRng;
    use super::*;

    const HOUR_US: u64 = 3_600_000_000;

    fn skewed(offset_us: i64, drift_ppm: i32, true_us: u64) -> Clock {
        let mut clock = Clock::default();
        clock.set(Skew { offset_us, drift_ppm }, true_us);
        clock
    }

    #[test]
    fn a_timer_fires_by_the_nodes_own_clock() {
        let mut rng = SimRng::of(1, 0);
        for _ in 0..1_000 {
            for drift_ppm in [-900_000, -100, -1, 0, 1, 100, 2_000_000] {
                let behind_us = i64::try_from(rng.between(0, 1_000 * HOUR_US)).unwrap_or(0);
                let clock = skewed(-behind_us, drift_ppm, rng.between(0, HOUR_US));
                let start_us = HOUR_US + rng.between(0, HOUR_US);
                let span_us = rng.between(0, 10_000_000);
                let end_us = start_us + clock.true_span_us(span_us);
                let moved_us = clock.local_us(end_us) - clock.local_us(start_us);
                assert!((span_us..span_us + 4).contains(&moved_us), "{clock:?}: {span_us} {moved_us}");
            }
        }
    }

    #[test]
    fn a_drift_begins_when_it_is_set_and_an_offset_jumps() {
        let mut clock = Clock::default();
        clock.set(Skew { offset_us: 0, drift_ppm: 100_000 }, HOUR_US);
        assert_eq!(clock.local_us(HOUR_US), Skew::EPOCH_US + HOUR_US, "a drift starts at zero");
        assert_eq!(clock.local_us(2 * HOUR_US), Skew::EPOCH_US + 2 * HOUR_US + HOUR_US / 10);
        clock.set(Skew { offset_us: -7, drift_ppm: -100_000 }, 2 * HOUR_US);
        assert_eq!(clock.local_us(2 * HOUR_US), Skew::EPOCH_US + 2 * HOUR_US + HOUR_US / 10 - 7);
        assert_eq!(clock.local_us(3 * HOUR_US), Skew::EPOCH_US + 3 * HOUR_US - 7);
        clock.set(Skew::default(), 3 * HOUR_US);
        assert_eq!(clock.local_us(4 * HOUR_US), Skew::EPOCH_US + 4 * HOUR_US, "the offset is taken back");
    }

    #[test]
    fn a_clock_never_shows_less_than_zero() {
        assert_eq!(skewed(i64::MIN, i32::MIN, 0).local_us(HOUR_US), 0);
        assert_eq!(skewed(i64::MAX, i32::MAX, 0).local_us(u64::MAX), u64::MAX);
    }
}
