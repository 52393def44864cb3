//! The one door to the clocks.
//!
//! Under tokio this is tokio's clock, so that tests which pause time pause everything.

#[cfg(feature = "tokio")]
pub(crate) use tokio::time::Instant;

#[cfg(not(feature = "tokio"))]
pub(crate) use std::time::Instant;

/// The monotonic time.
#[cfg_attr(not(feature = "tokio"), expect(clippy::disallowed_methods, reason = "the one door"))]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for responses without a `Date`.
#[cfg(feature = "reqwest")]
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
