//! The one door to the clocks and to chance.
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

/// The moment in so long; as good as never if that is out of reach.
pub(crate) fn after(wait: Duration) -> Instant {
    /// A timer cannot be set for later than some hundreds of years.
    const LONGEST: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    now() + wait.min(LONGEST)
}

/// How long it is until then; zero if it has passed.
pub(crate) fn until(moment: Instant) -> Duration {
    moment.saturating_duration_since(now())
}

/// How long ago that was.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// The future's outcome, unless that takes longer.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout_at(after(limit), future).await
}

/// The future's outcome, unless the moment comes first.
pub(crate) async fn by<T>(moment: Instant, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout_at(moment, future).await
}

/// A stream of rolls, seeded if a test wants the same again.
pub(crate) fn rolls(seed: Option<u64>) -> Rng {
    seed.map_or_else(Rng::new, Rng::with_seed)
}
