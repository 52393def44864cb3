//! The clocks of this engine: our own decides, the wall is for people.

use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// The time since some fixed moment in this process's life. While the machine sleeps it may stand still: then we
/// only wait longer for others.
pub(super) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}

/// The host's wall clock.
pub(super) fn wall() -> Timestamp {
    Timestamp::now()
}
