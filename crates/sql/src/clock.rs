//! The only access to the clocks and to random numbers.

use std::sync::OnceLock;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

/// Returns the monotonic time since a fixed moment in this process.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}

/// Returns the host's wall clock, for the store in a file.
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Returns a random duration between this and twice this.
pub(crate) fn about(time: Duration) -> Duration {
    time + time.mul_f64(Rng::new().f64())
}
