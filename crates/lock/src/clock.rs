//! The only access to the clocks and to random numbers. Leases are measured with the clock of `holdoff-clock`.

use std::time::Duration;

use fastrand::Rng;
pub(crate) use holdoff_clock::{now, sleep_until};

/// Returns a random number.
pub(crate) fn roll() -> u32 {
    Rng::new().u32(..)
}

/// Returns the time since 1970 on the wall clock. The wall clock can be set, so no lease is measured with it. Fencing
/// tokens start from it.
#[expect(clippy::disallowed_methods, reason = "the only access to this clock")]
pub(crate) fn wall() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time since the machine was booted, including suspensions. All processes of the machine read the same.
#[cfg(all(feature = "sqlite", any(target_os = "linux", target_os = "android")))]
pub(crate) fn since_boot() -> Duration {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(boot.tv_sec), u32::try_from(boot.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// Returns an identifier of the boot that [`since_boot`] counts from.
#[cfg(all(feature = "sqlite", any(target_os = "linux", target_os = "android")))]
pub(crate) fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("boot {}", id.trim())
}

/// Returns the time of the wall clock, which can be set: on other systems this crate reads no boot clock.
#[cfg(all(feature = "sqlite", not(any(target_os = "linux", target_os = "android"))))]
#[expect(clippy::disallowed_methods, reason = "the only access to this clock")]
pub(crate) fn since_boot() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns a constant: the wall clock continues over a reboot.
#[cfg(all(feature = "sqlite", not(any(target_os = "linux", target_os = "android"))))]
pub(crate) fn boot() -> String {
    "1970".to_owned()
}
