//! The store's clock: the host's clock, but never below the largest time seen.
//!
//! If the host's clock is set back, this clock continues from its last time at the same pace. It does not
//! stop until the host's clock has caught up; otherwise no step would become due for an hour after the host's
//! clock was corrected by an hour.
//!
//! This file is the crate's only access to the host's clocks and to random numbers.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use holdoff_policy::as_micros_i64;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The clock of one store, as this process knows it.
#[derive(Debug)]
pub(super) struct StoreClock {
    /// The largest observed time, and the local time of its observation.
    seen: Mutex<(i64, Duration)>,
}

impl StoreClock {
    /// Creates a clock that has observed only the host's clock.
    pub(super) fn new() -> Self {
        Self { seen: Mutex::new((wall_micros(), monotonic())) }
    }

    /// Returns the time in microseconds since 1970.
    pub(super) fn now(&self) -> i64 {
        self.at(wall_micros(), monotonic())
    }

    fn at(&self, wall: i64, instant: Duration) -> i64 {
        let mut seen = self.seen.lock();
        let passed = as_micros_i64(instant.saturating_sub(seen.1));
        let now = wall.max(seen.0.saturating_add(passed));
        *seen = (now, instant);
        now
    }

    /// Observes a time that the store contains; returns the current time.
    pub(super) fn observe(&self, time: i64) -> i64 {
        let now = self.now();
        if time > now {
            let mut seen = self.seen.lock();
            *seen = (time.max(seen.0), monotonic());
            return seen.0;
        }
        now
    }
}

/// Returns the host's clock in microseconds since 1970.
fn wall_micros() -> i64 {
    as_micros_i64(wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Returns the host's wall clock.
#[expect(clippy::disallowed_methods, reason = "the crate's only access to the wall clock")]
fn wall() -> SystemTime {
    SystemTime::now()
}

/// Returns the monotonic time since a fixed moment in this process.
pub(super) fn monotonic() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_continues_when_the_host_clock_is_set_back() {
        let clock = StoreClock::new();
        let (start, instant) = *clock.seen.lock();
        let second = Duration::from_secs(1);
        assert_eq!(clock.at(start + 1_000_000, instant + second), start + 1_000_000);
        let an_hour_back = start - 3_600_000_000;
        assert_eq!(clock.at(an_hour_back, instant + 2 * second), start + 2_000_000);
        assert_eq!(clock.at(an_hour_back, instant + 5 * second), start + 5_000_000);
        assert_eq!(
            clock.at(start + 9_000_000, instant + 6 * second),
            start + 9_000_000,
            "the clock follows the host clock forward"
        );
    }

    #[test]
    fn the_clock_is_never_below_an_observed_time() {
        let clock = StoreClock::new();
        let later = clock.now() + 60_000_000;
        assert_eq!(clock.observe(later), later);
        assert!(clock.now() >= later);
    }
}
