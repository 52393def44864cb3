//! The only access to the clocks and to random numbers.
//!
//! The monotonic clock is tokio's, so that a test that pauses time pauses the whole crate.

use std::sync::OnceLock;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

/// Returns the time since a fixed moment in this process's lifetime. It never decreases.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}

/// Draws a random number.
pub(crate) fn roll() -> u32 {
    Rng::new().u32(..)
}
