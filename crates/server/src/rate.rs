//! Rate limits. Pure: the clock is an input.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The maximum number of keys with a bucket.
const MOST: usize = 10_000;
const FASTEST: u32 = 1_000_000;

/// A rate such as `1000/s`. It permits that many requests at once, and then refills at this rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    count: u32,
    per: Duration,
}

impl Rate {
    pub(crate) const fn new(count: u32, per: Duration) -> Self {
        Self { count, per }
    }

    /// Returns the time in which one permit is refilled.
    fn interval(self) -> Duration {
        self.per / self.count.max(1)
    }
}

/// The text is not a rate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a whole number from 1 to {FASTEST}, a slash, and s, m or h, such as 1000/s")]
pub struct InvalidRate;

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (count, unit) = text.split_once('/').ok_or(InvalidRate)?;
        let per = match unit.trim() {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(InvalidRate),
        };
        let count: u32 = count.trim().parse().map_err(|_| InvalidRate)?;
        if !(1..=FASTEST).contains(&count) {
            return Err(InvalidRate);
        }
        Ok(Self::new(count, Duration::from_secs(per)))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            60 => "m",
            3600 => "h",
            _ => "s",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// A token bucket for each key, stored as one number: the time at which the bucket is full again.
#[derive(Debug)]
pub(crate) struct Buckets<K> {
    rate: Rate,
    full_at: Mutex<HashMap<K, Duration>>,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, full_at: Mutex::default() }
    }

    /// Returns the time that this key must wait, or `None`. Takes nothing from the bucket.
    pub(crate) fn wait(&self, key: &K, now: Duration) -> Option<Duration> {
        self.wait_in(&self.lock(), key, now)
    }

    fn wait_in(&self, buckets: &HashMap<K, Duration>, key: &K, now: Duration) -> Option<Duration> {
        let full_at = buckets.get(key).copied().unwrap_or_default();
        let wait = (full_at + self.rate.interval()).saturating_sub(now + self.rate.per);
        (!wait.is_zero()).then_some(wait)
    }

    /// Takes one permit. The error is the time to wait.
    pub(crate) fn take(&self, key: &K, now: Duration) -> Result<(), Duration> {
        let mut buckets = self.lock();
        if let Some(wait) = self.wait_in(&buckets, key, now) {
            return Err(wait);
        }
        if buckets.len() >= MOST && !buckets.contains_key(key) {
            make_room(&mut buckets, now);
        }
        let full_at = buckets.entry(key.clone()).or_default();
        *full_at = (*full_at).max(now) + self.rate.interval();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Duration>> {
        self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes full buckets, which need no memory. If none is full, removes a tenth of the buckets all the same: memory is
/// bounded for any number of keys.
fn make_room<K: Hash + Eq>(buckets: &mut HashMap<K, Duration>, now: Duration) {
    buckets.retain(|_, full_at| *full_at > now);
    let mut surplus = (buckets.len() + MOST / 10).saturating_sub(MOST);
    buckets.retain(|_, _| {
        let goes = surplus > 0;
        surplus = surplus.saturating_sub(1);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_they_are_written() {
        for text in ["1/s", "1000/s", "50/m", "7/h"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["", "5", "0/s", "-1/s", "1/d", "1.5/s", "2000000/s"] {
            assert_eq!(text.parse::<Rate>(), Err(InvalidRate), "{text}");
        }
    }

    #[test]
    fn so_many_at_once_and_then_at_the_pace() {
        let buckets = Buckets::new("10/s".parse().unwrap());
        let at = Duration::from_millis;
        let taken = (0..50).filter(|_| buckets.take(&"a", at(5000)).is_ok()).count();
        assert_eq!(taken, 10);
        assert_eq!(buckets.take(&"a", at(5000)), Err(at(100)));
        assert_eq!(buckets.take(&"b", at(5000)), Ok(()), "another has its own");
        assert_eq!(buckets.take(&"a", at(5050)), Err(at(50)));
        assert_eq!(buckets.take(&"a", at(5100)), Ok(()));
        assert_eq!(buckets.take(&"a", at(5100)), Err(at(100)));
        let later = (0..50).filter(|_| buckets.take(&"a", at(60_000)).is_ok()).count();
        assert_eq!(later, 10, "no more is saved up");
    }

    #[test]
    fn memory_has_a_limit() {
        let buckets = Buckets::new("1/h".parse().unwrap());
        for key in 0..25_000_u32 {
            buckets.take(&key, Duration::ZERO).unwrap();
        }
        assert!(buckets.lock().len() <= MOST);
        assert!(buckets.take(&24_999, Duration::ZERO).is_err(), "the newest is remembered");
    }
}
