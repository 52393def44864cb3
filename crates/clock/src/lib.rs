//! The clock that leases are measured with: it runs on while the machine is suspended.
//!
//! Timers are tokio's, and they stop during a suspension. Code that waits for a point in time therefore reads [`now`] again
//! when its timer has fired, and code that checks the validity of a lease reads [`now`] instead of a timer. The time is
//! tokio's plus the time spent suspended, so that a test that pauses tokio's time pauses all time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The granularity of the suspended time. It hides the jitter of the difference between two clocks that are read one
/// after the other.
const STEP_MS: u64 = 10;

/// Returns the time since a fixed origin, including suspensions. It never decreases.
pub fn now() -> Duration {
    Instant::now().saturating_duration_since(start()).saturating_add(suspended())
}

/// Sleeps until [`now`] has reached `moment`. Cancel-safe.
pub async fn sleep_until(moment: Duration) {
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

/// Returns the origin: an hour before the first call. A runtime with paused time may have started before that call.
#[expect(clippy::disallowed_methods, reason = "the only access to this clock")]
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(|| {
        let now = std::time::Instant::now();
        Instant::from_std(now.checked_sub(Duration::from_secs(3600)).unwrap_or(now))
    })
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

/// Returns zero: on other systems a suspension is not detected.
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
