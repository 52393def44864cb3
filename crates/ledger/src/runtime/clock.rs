//! The only access of the runtime to the clock.
//!
//! The clock is tokio's, so that a test that pauses or simulates time affects the whole runtime.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use holdoff_policy::as_micros_u64;
use tokio::time::Instant;
use tokio::time::error::Elapsed;
pub(super) use tokio::time::{MissedTickBehavior, interval};

/// Returns the microseconds since a fixed time of this process.
pub(super) fn now_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    as_micros_u64(Instant::now().saturating_duration_since(start))
}

/// Returns the output of the future, or an error if it takes longer than the limit.
pub(super) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout(limit, future).await
}
