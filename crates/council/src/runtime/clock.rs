//! The one door to the clock and to chance.
//!
//! The clock is tokio's, so that tests which pause or simulate time do it to everything.

use std::future::Future;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::error::Elapsed;
pub(crate) use tokio::time::{Instant, sleep, sleep_until};

/// The monotonic time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How long ago that was, in microseconds.
pub(crate) fn since_us(moment: Instant) -> u64 {
    u64::try_from(now().saturating_duration_since(moment).as_micros()).unwrap_or(u64::MAX)
}

/// The moment so many microseconds after another; as good as never if that is out of reach.
pub(crate) fn after_us(moment: Instant, wait_us: u64) -> Instant {
    /// A timer cannot be set for later than some hundreds of years.
    const LONGEST: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    moment + Duration::from_micros(wait_us).min(LONGEST)
}

/// The future's outcome, unless that takes longer.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout(limit, future).await
}

/// A stream of rolls, seeded if a test wants the same again.
pub(crate) fn rolls(seed: Option<u64>) -> Rng {
    seed.map_or_else(Rng::new, Rng::with_seed)
}
