//! The only access to the clocks and to random numbers.
//!
//! Leases are measured on a clock that keeps running while the machine is suspended. Timers are tokio's, and they stop
//! during a suspension. Code that waits for a point in time therefore reads [`now`] again when its timer has fired, and
//! code that checks the validity of a lease reads [`now`] instead of a timer. The time is tokio's plus the time spent
//! suspended, so that a test that pauses tokio's time pauses all time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

/// The granularity of the suspended time. It hides the jitter of the difference between two clocks that are read one
/// after the other.
const STEP_MS: u64 = 10;

/// Returns the time since a fixed origin, including suspensions. It never decreases.
pub(crate) fn now() -> Duration {
    Instant::now().saturating_duration_since(start()).saturating_add(suspended())
}

/// Sleeps until [`now`] has reached `moment`.
pub(crate) async fn sleep_until(moment: Duration) {
    /// The longest sleep between two readings of [`now`], and so the most that a suspension can delay the return.
    const MAX_SLEEP: Duration = Duration::from_secs(1);
    loop {
        let left = moment.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(MAX_SLEEP)).await;
    }
}

/// Returns a random number.
pub(crate) fn roll() -> u32 {
    Rng::new().u32(..)
}

/// Returns the origin: an hour before the first call. A runtime with paused time may have started before that call.
#[expect(clippy::disallowed_methods, reason = "the only access to this clock")]
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(|| {
        let now = std::time::Instant::now();
        Instant::from_std(now.checked_sub(Duration::from_secs(3600)).unwrap_or(now))
    })
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

/// Returns the total time that the machine has been suspended since it was booted, as far as it is known.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    static MAX_SUSPENDED_MS: AtomicU64 = AtomicU64::new(0);
    // Read the boot clock first. If the thread is preempted between the two readings, the difference is too small,
    // never too large; the largest difference seen is correct.
    let boot = clock_gettime(ClockId::Boottime);
    let awake = clock_gettime(ClockId::Monotonic);
    let millis = |time: rustix::time::Timespec| time.tv_sec * 1000 + time.tv_nsec / 1_000_000;
    let apart = u64::try_from(millis(boot) - millis(awake)).unwrap_or(0);
    let apart = apart / STEP_MS * STEP_MS;
    Duration::from_millis(MAX_SUSPENDED_MS.fetch_max(apart, Ordering::Relaxed).max(apart))
}

/// Returns zero: on other systems a suspension is not detected, and only fencing tokens protect the resource.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time() {
        let before = now();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let passed = now().saturating_sub(before);
        assert!(passed >= Duration::from_secs(100) && passed < Duration::from_millis(100_020), "{passed:?}");
    }

    #[test]
    fn the_clock_is_not_behind_the_boot_clock() {
        let before = (now(), rustix::time::clock_gettime(rustix::time::ClockId::Boottime));
        #[expect(clippy::disallowed_methods, reason = "real time must pass")]
        std::thread::sleep(Duration::from_millis(30));
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let passed = boot - before.1;
        let passed = Duration::new(passed.tv_sec.unsigned_abs(), u32::try_from(passed.tv_nsec).unwrap());
        assert!(now().saturating_sub(before.0) + Duration::from_millis(STEP_MS) >= passed);
    }
}
