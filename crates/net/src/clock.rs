//! The only access of this crate to clocks and random numbers.
//!
//! The clock is tokio's, so that a test that pauses or simulates time does so for the whole crate.

use std::future::Future;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::error::Elapsed;
pub(crate) use tokio::time::{Instant, sleep, sleep_until};

/// Returns the current monotonic time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the instant after `wait`; a wait of more than a year is cut to one year.
pub(crate) fn after(wait: Duration) -> Instant {
    /// A timer cannot be set for later than some hundreds of years, and one year is as good as never.
    const LONGEST: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    now() + wait.min(LONGEST)
}

/// Returns the time that remains until `moment`; zero if it has passed.
pub(crate) fn until(moment: Instant) -> Duration {
    moment.saturating_duration_since(now())
}

/// Returns the time that has passed since `moment`.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// Awaits the future for at most `limit`.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout_at(after(limit), future).await
}

/// Awaits the future until `moment` at the latest.
pub(crate) async fn by<T>(moment: Instant, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout_at(moment, future).await
}

/// Returns a source of rolls; a test sets the seed to repeat them.
pub(crate) fn rolls(seed: Option<u64>) -> Rng {
    seed.map_or_else(Rng::new, Rng::with_seed)
}
