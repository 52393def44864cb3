//! The only access to the clock.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// Returns the time since a fixed moment in the life of this process. It never decreases.
///
/// The clock is tokio's, so a test that pauses time pauses all components.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}
