//! Rate limits. Pure: the clock is an input.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{TokenBucket, TokenRate};

use parking_lot::Mutex;

/// The maximum number of keys with a bucket.
const MAX_KEYS: usize = 10_000;
const MAX_RATE: u32 = 1_000_000;

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

    fn token_rate(self) -> TokenRate {
        TokenRate::new(self.per / self.count.max(1), self.count)
    }
}

/// The text is not a rate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected an integer from 1 to {MAX_RATE}, a slash, and s, m or h, such as 1000/s")]
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
        if !(1..=MAX_RATE).contains(&count) {
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

/// A token bucket for each key.
#[derive(Debug)]
pub(crate) struct RateLimiter<K> {
    rate: TokenRate,
    buckets: Mutex<HashMap<K, TokenBucket>>,
}

impl<K: Hash + Eq + Clone> RateLimiter<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate: rate.token_rate(), buckets: Mutex::default() }
    }

    /// Takes one permit. The error is the time to wait.
    pub(crate) fn take(&self, key: &K, now: Duration) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.get_mut(key) {
            return bucket.take(&self.rate, now);
        }
        if buckets.len() >= MAX_KEYS {
            make_room(&mut buckets, now);
        }
        buckets.entry(key.clone()).or_default().take(&self.rate, now)
    }
}

/// A limit on what runs at once for each key.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit<K: Hash + Eq> {
    max: u32,
    running: Arc<Mutex<HashMap<K, u32>>>,
}

/// A place under a [`ConcurrencyLimit`].
#[derive(Debug)]
pub(crate) struct Running<K: Hash + Eq> {
    key: K,
    running: Arc<Mutex<HashMap<K, u32>>>,
}

impl<K: Hash + Eq + Clone> ConcurrencyLimit<K> {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, running: Arc::default() }
    }

    /// Returns a place, or `None` if the key is at its limit.
    pub(crate) fn enter(&self, key: K) -> Option<Running<K>> {
        let mut running = self.running.lock();
        let count = running.entry(key.clone()).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Running { key, running: Arc::clone(&self.running) })
    }
}

impl<K: Hash + Eq> Drop for Running<K> {
    fn drop(&mut self) {
        let mut running = self.running.lock();
        if let Some(count) = running.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.key);
            }
        }
    }
}

/// Removes full buckets, which need no memory. If none is full, removes a tenth of the buckets all the same: memory is
/// bounded for any number of keys.
fn make_room<K: Hash + Eq>(buckets: &mut HashMap<K, TokenBucket>, now: Duration) {
    buckets.retain(|_, bucket| !bucket.is_full(now));
    let mut surplus = (buckets.len() + MAX_KEYS / 10).saturating_sub(MAX_KEYS);
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
    fn a_rate_survives_a_round_trip() {
        for text in ["1/s", "1000/s", "50/m", "7/h"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["", "5", "0/s", "-1/s", "1/d", "1.5/s", "2000000/s"] {
            assert_eq!(text.parse::<Rate>(), Err(InvalidRate), "{text}");
        }
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let buckets = RateLimiter::new("10/s".parse().unwrap());
        let at = Duration::from_millis;
        let taken = (0..50).filter(|_| buckets.take(&"a", at(5000)).is_ok()).count();
        assert_eq!(taken, 10);
        assert_eq!(buckets.take(&"a", at(5000)), Err(at(100)));
        assert_eq!(buckets.take(&"b", at(5000)), Ok(()), "another caller has its own bucket");
        assert_eq!(buckets.take(&"a", at(5050)), Err(at(50)));
        assert_eq!(buckets.take(&"a", at(5100)), Ok(()));
        assert_eq!(buckets.take(&"a", at(5100)), Err(at(100)));
        let later = (0..50).filter(|_| buckets.take(&"a", at(60_000)).is_ok()).count();
        assert_eq!(later, 10, "no more is saved up");
    }

    #[test]
    fn each_key_has_its_own_places() {
        let limit = ConcurrencyLimit::new(2);
        let [one, two] = [limit.enter("a"), limit.enter("a")];
        assert!(one.is_some() && two.is_some() && limit.enter("a").is_none());
        let other = limit.enter("b");
        assert!(other.is_some());
        drop((one, two, other));
        assert!(limit.running.lock().is_empty() && limit.enter("a").is_some());
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let buckets = RateLimiter::new("1/h".parse().unwrap());
        for key in 0..25_000_u32 {
            buckets.take(&key, Duration::ZERO).unwrap();
        }
        assert!(buckets.buckets.lock().len() <= MAX_KEYS);
        assert!(buckets.take(&24_999, Duration::ZERO).is_err(), "the newest is remembered");
    }
}
