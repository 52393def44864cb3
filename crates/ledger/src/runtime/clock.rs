//! The only access of the runtime to the clocks.
//!
//! The core's time is the clock of leases, which runs on while the machine is suspended: a leader that resumes must not
//! serve a read by a lease that has ended meanwhile. Timers are tokio's.

use std::future::Future;
use std::time::Duration;

use holdoff_policy::as_micros_u64;
use tokio::time::error::Elapsed;
pub(super) use tokio::time::{MissedTickBehavior, interval};

/// Returns the microseconds since a fixed time, suspensions included. It never decreases.
pub(super) fn now_us() -> u64 {
    as_micros_u64(holdoff_clock::now())
}

/// Returns the output of the future, or an error if it takes longer than the limit.
pub(super) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout(limit, future).await
}
