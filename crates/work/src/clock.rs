//! The only access to the clocks and to random numbers. Leases are measured with the clock of `holdoff-clock`.

use fastrand::Rng;
pub(crate) use holdoff_clock::now;

/// Draws a random number.
pub(crate) fn roll() -> u32 {
    Rng::new().u32(..)
}
