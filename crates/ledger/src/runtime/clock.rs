//! The one door to the clock and to chance.
//!
//! The clock is tokio's, so that tests which pause or simulate time do it to everything.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::error::Elapsed;
pub(super) use tokio::time::{MissedTickBehavior, interval, sleep};

/// Microseconds since some fixed moment of this process's life.
pub(super) fn now_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    u64::try_from(Instant::now().saturating_duration_since(start).as_micros()).unwrap_or(u64::MAX)
}

/// The future's outcome, unless that takes longer.
pub(super) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout(limit, future).await
}
