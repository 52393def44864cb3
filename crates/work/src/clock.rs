//! The one door to the clocks and to chance.
//!
//! The monotonic clock is tokio's, so that tests which pause time pause everything.

use std::sync::OnceLock;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

/// The time since some fixed moment in this process's life. It only grows.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}

/// The host's wall clock: for the store in a file, and for answers without a `Date`.
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// A number drawn at random.
pub(crate) fn roll() -> u32 {
    Rng::new().u32(..)
}
