//! The only place that looks at a clock, or draws at random.

use std::time::{Instant, SystemTime};

/// A moment, for measuring how long something took.
#[expect(clippy::disallowed_methods, reason = "the crate's one clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Microseconds since 1970 by the host's clock. Only the SQLite store and the names of tasks go by it.
#[expect(clippy::disallowed_methods, reason = "the crate's one clock")]
pub(crate) fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A number from all of `u32`.
#[expect(clippy::disallowed_methods, reason = "the crate's one source of chance")]
pub(crate) fn roll() -> u32 {
    fastrand::u32(..)
}
