//! The only access of the runtime to the clock and to random numbers.
//!
//! The clock is tokio's, so a test that pauses time pauses all components.

use std::future::Future;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::error::Elapsed;
pub(crate) use tokio::time::{Instant, sleep, sleep_until};

/// Returns the monotonic time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the microseconds since a moment.
pub(crate) fn since_us(moment: Instant) -> u64 {
    holdoff_policy::as_micros_u64(now().saturating_duration_since(moment))
}

/// Returns the moment this many microseconds after another, at most a year later.
pub(crate) fn after_us(moment: Instant, wait_us: u64) -> Instant {
    /// A timer beyond some hundreds of years would overflow.
    const LONGEST: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    moment + Duration::from_micros(wait_us).min(LONGEST)
}

/// Runs a future with a timeout.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout(limit, future).await
}

/// Creates a random number generator, with this seed if there is one.
pub(crate) fn rolls(seed: Option<u64>) -> Rng {
    seed.map_or_else(Rng::new, Rng::with_seed)
}
