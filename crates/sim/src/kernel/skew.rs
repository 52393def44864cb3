//! A node's own clock.

use serde::{Deserialize, Serialize};

const MILLION: i128 = 1_000_000;

/// How a node's clock differs from the true one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skew {
    /// How far ahead it was at time 0; negative if behind.
    pub offset_us: i64,
    /// How much it gains, in millionths; negative if it loses. Brought to at least −900 000.
    pub drift_ppm: i32,
}

impl Skew {
    /// What the clock shows at this true time; before its own zero it shows 0.
    pub fn local_us(&self, true_us: u64) -> u64 {
        let true_us = i128::from(true_us);
        let local = true_us + i128::from(self.offset_us) + true_us * self.drift() / MILLION;
        u64::try_from(local.max(0)).unwrap_or(u64::MAX)
    }

    /// How long it truly takes until the clock has moved by this much, rounded up.
    pub fn true_span_us(&self, local_us: u64) -> u64 {
        let rate = MILLION + self.drift();
        let span = (i128::from(local_us) * MILLION + rate - 1) / rate;
        u64::try_from(span).unwrap_or(u64::MAX)
    }

    fn drift(&self) -> i128 {
        i128::from(self.drift_ppm.max(-900_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_fires_when_the_own_clock_says_so() {
        for drift_ppm in [-900_000, -100, 0, 100, 2_000_000] {
            let skew = Skew { offset_us: 5_000, drift_ppm };
            let moved = skew.local_us(skew.true_span_us(1_000_000)) - skew.local_us(0);
            assert!((1_000_000..1_000_004).contains(&moved), "{drift_ppm}: {moved}");
        }
    }

    #[test]
    fn a_clock_never_shows_less_than_zero() {
        assert_eq!(Skew { offset_us: i64::MIN, drift_ppm: i32::MIN }.local_us(u64::MAX), 0);
    }
}
