//! The only access to the clocks.

use std::time::{Duration, SystemTime};

/// Returns the wall-clock time, to interpret a `Retry-After` without a `Date`.
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Returns a monotonic time that includes suspension of the machine, because leases expire during suspension
/// too.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// On other systems the wall clock includes suspension of the machine. If it is set back, the client
/// considers a lock held for longer than it is; the fencing token still protects the resource.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn now() -> Duration {
    wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
