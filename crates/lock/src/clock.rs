//! The one door to the clocks and to chance.
//!
//! Leases are judged on a clock that goes on while the machine is suspended. Timers are tokio's, which stand still
//! then; so whoever waits for a moment looks at [`now`] again when its timer has fired, and whoever asks whether a
//! lease is valid asks [`now`] and no timer. Time is tokio's plus the time spent suspended, so that tests which pause
//! time pause everything.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

/// Suspension is counted in whole steps of this, so that the two clocks it is told from, read one after the other,
/// do not tremble.
const STEP_MS: u64 = 10;

/// The time since some fixed moment, suspension included. It only grows.
pub(crate) fn now() -> Duration {
    Instant::now().saturating_duration_since(start()).saturating_add(suspended())
}

/// Sleeps until [`now`] is at least this, or a little less: look again.
pub(crate) async fn sleep_until(moment: Duration) {
    /// After a suspension nobody oversleeps by more than this.
    const LONGEST: Duration = Duration::from_secs(1);
    loop {
        let left = moment.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST)).await;
    }
}

/// A number drawn at random.
pub(crate) fn roll() -> u32 {
    Rng::new().u32(..)
}

/// An hour ago when first asked: a runtime whose time is paused may have begun before this.
#[expect(clippy::disallowed_methods, reason = "the one door")]
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(|| {
        let now = std::time::Instant::now();
        Instant::from_std(now.checked_sub(Duration::from_secs(3600)).unwrap_or(now))
    })
}

/// Seconds since 1970, by a clock that somebody may set: no lease is measured with it.
#[cfg(feature = "ledger")]
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(crate) fn wall_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// How long the machine has been running, suspension included: the same to all its processes.
#[cfg(all(feature = "sqlite", any(target_os = "linux", target_os = "android")))]
pub(crate) fn since_boot() -> Duration {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(boot.tv_sec), u32::try_from(boot.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// Which start of which machine that counts from.
#[cfg(all(feature = "sqlite", any(target_os = "linux", target_os = "android")))]
pub(crate) fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("boot {}", id.trim())
}

/// Elsewhere the wall clock must do, which somebody may set.
#[cfg(all(feature = "sqlite", not(any(target_os = "linux", target_os = "android"))))]
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(crate) fn since_boot() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The wall clock goes on when the machine is started again.
#[cfg(all(feature = "sqlite", not(any(target_os = "linux", target_os = "android"))))]
pub(crate) fn boot() -> String {
    "1970".to_owned()
}

/// How long the machine has been suspended in its life, as far as it is known.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    static LONGEST_MS: AtomicU64 = AtomicU64::new(0);
    // The boot clock first: if the thread is held up between the two, the difference comes out too small, never
    // too large, and the largest seen is the truth.
    let boot = clock_gettime(ClockId::Boottime);
    let awake = clock_gettime(ClockId::Monotonic);
    let millis = |time: rustix::time::Timespec| time.tv_sec * 1000 + time.tv_nsec / 1_000_000;
    let apart = u64::try_from(millis(boot) - millis(awake)).unwrap_or(0);
    let apart = apart / STEP_MS * STEP_MS;
    Duration::from_millis(LONGEST_MS.fetch_max(apart, Ordering::Relaxed).max(apart))
}

/// Elsewhere a suspended machine is not known from one that is awake: fencing tokens are what remains.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn paused_time_is_this_clocks_time() {
        let before = now();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let passed = now().saturating_sub(before);
        assert!(passed >= Duration::from_secs(100) && passed < Duration::from_millis(100_020), "{passed:?}");
    }

    #[test]
    fn it_is_at_least_the_boot_clock() {
        let before = (now(), rustix::time::clock_gettime(rustix::time::ClockId::Boottime));
        #[expect(clippy::disallowed_methods, reason = "real time must pass")]
        std::thread::sleep(Duration::from_millis(30));
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let passed = boot - before.1;
        let passed = Duration::new(passed.tv_sec.unsigned_abs(), u32::try_from(passed.tv_nsec).unwrap());
        assert!(now().saturating_sub(before.0) + Duration::from_millis(STEP_MS) >= passed);
    }
}
