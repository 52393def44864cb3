//! The one door to the clock.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// The time since some fixed moment in this process's life. It only grows.
///
/// The clock is tokio's, so that tests which pause time pause everything.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}
