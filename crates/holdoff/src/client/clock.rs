//! The one door to the clocks.

use std::time::{Duration, SystemTime};

/// The wall clock, to read a `Retry-After` without a `Date`.
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}

/// A clock that only grows, also while the machine sleeps: a lease ends then, too.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Elsewhere the wall clock counts while the machine sleeps. If it is set back, a lock is thought to be held for
/// longer than it is; its token tells.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn now() -> Duration {
    wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
