//! The range from which a delay is drawn.

use core::time::Duration;

use crate::micros;

/// The range from which a delay is drawn, both ends included, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    low_us: u64,
    high_us: u64,
}

impl Window {
    /// Creates a window. Limits the ends to [`MAX_DELAY`](crate::MAX_DELAY), and the low end to the high end.
    pub(crate) const fn new(low_us: u64, high_us: u64) -> Self {
        let high_us = if high_us > micros::MAX_DELAY_US { micros::MAX_DELAY_US } else { high_us };
        let low_us = if low_us > high_us { high_us } else { low_us };
        Self { low_us, high_us }
    }

    /// Returns the shortest delay.
    pub const fn low(&self) -> Duration {
        Duration::from_micros(self.low_us)
    }

    /// Returns the longest delay.
    pub const fn high(&self) -> Duration {
        Duration::from_micros(self.high_us)
    }

    /// Returns the shortest delay in microseconds.
    #[inline]
    pub const fn low_us(&self) -> u64 {
        self.low_us
    }

    /// Returns the longest delay in microseconds.
    #[inline]
    pub const fn high_us(&self) -> u64 {
        self.high_us
    }

    /// Returns the mean delay in microseconds, rounded down.
    pub const fn mean_us(&self) -> u64 {
        u64::midpoint(self.low_us, self.high_us)
    }

    /// Returns the delay that this roll picks.
    ///
    /// The roll, written twice, is a 64-bit fraction of the window: 0 picks the low end, `u32::MAX` the high
    /// end, and every value in between belongs to equally many rolls, plus or minus one.
    #[inline]
    pub const fn pick(&self, roll: u32) -> Duration {
        let fraction = ((roll as u64) << 32) | roll as u64;
        let values = (self.high_us - self.low_us) + 1;
        Duration::from_micros(self.low_us + ((fraction as u128 * values as u128) >> 64) as u64)
    }

    /// Raises both ends: the low end to at least `floor`, the high end to at least `floor + spread`.
    #[inline]
    pub(crate) const fn raised(&self, floor_us: u64, spread_us: u64) -> Self {
        let low = if self.low_us > floor_us { self.low_us } else { floor_us };
        let spread_end = floor_us + spread_us;
        let high = if self.high_us > spread_end { self.high_us } else { spread_end };
        Self { low_us: low, high_us: high }
    }

    /// Removes the part of the window that does not end before `left` is over; returns `None` if less than
    /// half would remain.
    ///
    /// The limit is half, because windows that are cut shorter and shorter before a deadline end in a burst
    /// of attempts.
    #[inline]
    pub(crate) const fn cut(&self, left_us: u64) -> Option<Self> {
        if left_us <= self.mean_us() {
            return None;
        }
        let high_us = if self.high_us < left_us { self.high_us } else { left_us - 1 };
        Some(Self { low_us: self.low_us, high_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_and_the_largest_roll_pick_the_ends() {
        for (low, high) in [(0, 0), (0, 1), (500_000, 1_500_000), (0, micros::MAX_DELAY_US)] {
            let window = Window::new(low, high);
            assert_eq!((window.low_us(), window.high_us()), (low, high));
            assert_eq!(window.pick(0), window.low());
            assert_eq!(window.pick(u32::MAX), window.high());
        }
    }

    #[test]
    fn a_small_window_is_uniform() {
        let window = Window::new(0, 3);
        let quarter = 1 << 30;
        for value in 0..4_u32 {
            assert_eq!(window.pick(value * quarter + 10), Duration::from_micros(u64::from(value)));
        }
    }
}
