//! The store's clock: the host's, but never below the largest time seen.
//!
//! When the host's clock is set back, this one goes on from where it was, at the same pace; it does not stand still
//! until the host's has caught up, or nothing would be due for an hour after a wrong hour was put right.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use crate::clock;

/// The clock of one store, as this process knows it.
#[derive(Debug)]
pub struct Clock {
    /// A time somebody has seen, and when this process learned of it.
    seen: Mutex<(i64, Duration)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that has seen nothing but the host's.
    pub fn new() -> Self {
        Self { seen: Mutex::new((wall_micros(), clock::now())) }
    }

    /// Microseconds since 1970.
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

    /// Somebody has written this time.
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

/// Microseconds since 1970 by the host's clock.
fn wall_micros() -> i64 {
    micros(clock::wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Whole microseconds.
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
