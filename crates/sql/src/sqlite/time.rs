//! The store's clock: the host's clock, but never below the largest time seen.
//!
//! If the host's clock is set back, this clock continues from its last time at the same pace. It does not
//! stop until the host's clock has caught up; otherwise no step would become due for an hour after the host's
//! clock was corrected by an hour.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use crate::clock;

/// The clock of one store, as this process knows it.
#[derive(Debug)]
pub struct Clock {
    /// The largest observed time, and the local time of its observation.
    seen: Mutex<(i64, Duration)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Creates a clock that has observed only the host's clock.
    pub fn new() -> Self {
        Self { seen: Mutex::new((wall_micros(), clock::now())) }
    }

    /// Returns the time in microseconds since 1970.
    pub fn now(&self) -> i64 {
        self.at(wall_micros(), clock::now())
    }

    fn at(&self, wall: i64, instant: Duration) -> i64 {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let passed = micros(instant.saturating_sub(seen.1));
        let now = wall.max(seen.0.saturating_add(passed));
        *seen = (now, instant);
        now
    }

    /// Observes a time that the store contains; returns the current time.
    pub fn observe(&self, time: i64) -> i64 {
        let now = self.now();
        if time > now {
            let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *seen = (time.max(seen.0), clock::now());
            return seen.0;
        }
        now
    }
}

/// Returns the host's clock in microseconds since 1970.
fn wall_micros() -> i64 {
    micros(clock::wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Converts a duration to whole microseconds.
pub fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_when_the_hosts_clock_is_set_back() {
        let clock = Clock::new();
        let (start, instant) = *clock.seen.lock().unwrap();
        let second = Duration::from_secs(1);
        assert_eq!(clock.at(start + 1_000_000, instant + second), start + 1_000_000);
        let an_hour_back = start - 3_600_000_000;
        assert_eq!(clock.at(an_hour_back, instant + 2 * second), start + 2_000_000);
        assert_eq!(clock.at(an_hour_back, instant + 5 * second), start + 5_000_000);
        assert_eq!(
            clock.at(start + 9_000_000, instant + 6 * second),
            start + 9_000_000,
            "and follows it forward"
        );
    }

    #[test]
    fn it_is_never_below_what_others_have_written() {
        let clock = Clock::new();
        let later = clock.now() + 60_000_000;
        assert_eq!(clock.observe(later), later);
        assert!(clock.now() >= later);
    }
}
