//! The only access to the clock.

use std::sync::OnceLock;
use std::time::Duration;

use holdoff_policy::as_micros_i64;
use holdoff_work::Moment;
use tokio::time::Instant;

/// Returns the wall-clock time, for display only: how long ago something happened.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn wall() -> Moment {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Moment::from_micros(as_micros_i64(since))
}

/// Returns the time since a fixed moment in this process. It never decreases.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}
