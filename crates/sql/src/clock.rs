//! The one door to the clocks and to chance.

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

/// The host's wall clock: for the store in a file.
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Between this long and twice as long, by chance.
pub(crate) fn about(time: Duration) -> Duration {
    time + time.mul_f64(Rng::new().f64())
}
