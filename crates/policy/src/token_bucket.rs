//! Rate limits by token bucket.

use core::time::Duration;

/// A rate limit: `burst` calls at once, then one call for each interval.
///
/// ```
/// use holdoff_policy::{TokenBucket, TokenRate};
/// use std::time::Duration;
///
/// let rate = TokenRate::new(Duration::from_millis(100), 2);
/// let mut bucket = TokenBucket::default();
/// assert_eq!(bucket.take(&rate, Duration::ZERO), Ok(()));
/// assert_eq!(bucket.take(&rate, Duration::ZERO), Ok(()));
/// assert_eq!(bucket.take(&rate, Duration::from_millis(30)), Err(Duration::from_millis(70)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenRate {
    interval_ns: u64,
    burst: u32,
}

impl TokenRate {
    /// The range of [`per_second`](Self::per_second).
    const RATES: (f64, f64) = (1e-6, 1e9);

    /// Creates a rate of one token for each interval, at most 584 years, and a bucket of `burst` tokens. A bucket
    /// without room for a token admits no call.
    pub fn new(interval: Duration, burst: u32) -> Self {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Self { interval_ns, burst }
    }

    /// Creates a rate of so many tokens per second, from a millionth to a thousand million. The bucket holds the
    /// tokens of one second, but at least one. A value that is not a number is the lowest rate.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped; the casts saturate"
    )]
    pub fn per_second(rate: f64) -> Self {
        let (low, high) = Self::RATES;
        let rate = if rate >= low { rate.min(high) } else { low };
        Self { interval_ns: (1e9 / rate + 0.5) as u64, burst: rate.max(1.0) as u32 }
    }

    /// Returns the time in which an empty bucket fills.
    fn fill_ns(&self) -> u128 {
        u128::from(self.interval_ns) * u128::from(self.burst)
    }
}

/// A token bucket, stored as the time at which it is full again. A new bucket is full.
///
/// The rate is an argument of its methods, so that many buckets can share one. Times are on any monotonic clock
/// of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenBucket {
    full_at_ns: u128,
}

impl TokenBucket {
    /// Returns the time until a token is available; zero if one is. Takes nothing.
    pub fn wait(&self, rate: &TokenRate, now: Duration) -> Duration {
        if rate.burst == 0 {
            return Duration::MAX;
        }
        let needed_ns = self.full_at_ns.saturating_add(u128::from(rate.interval_ns));
        let wait_ns = needed_ns.saturating_sub(now.as_nanos().saturating_add(rate.fill_ns()));
        Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }

    /// Takes a token. If there is none, takes nothing and returns the time to wait.
    pub fn take(&mut self, rate: &TokenRate, now: Duration) -> Result<(), Duration> {
        let wait = self.wait(rate, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.full_at_ns = self.full_at_ns.max(now.as_nanos()).saturating_add(u128::from(rate.interval_ns));
        Ok(())
    }

    /// Returns whether the bucket is full.
    pub const fn is_full(&self, now: Duration) -> bool {
        self.full_at_ns <= now.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_second_holds_no_more_than_its_rate_after_the_burst() {
        let (rate, mut bucket) = (TokenRate::per_second(5.0), TokenBucket::default());
        let mut taken =
            |from: u64| (from..from + 1000).filter(|ms| bucket.take(&rate, MS(*ms)).is_ok()).count();
        let first = taken(0);
        assert_eq!(first, 9, "five at once, and one every 200 ms");
        assert_eq!(taken(1000), 5);
        assert_eq!(taken(60_000), 9, "an idle bucket holds the tokens of one second, and no more");
    }

    #[test]
    fn a_slow_rate_returns_the_time_to_wait() {
        let (rate, mut bucket) = (TokenRate::per_second(0.5), TokenBucket::default());
        assert_eq!(bucket.take(&rate, Duration::ZERO), Ok(()));
        assert_eq!(bucket.wait(&rate, Duration::ZERO), MS(2000));
        assert_eq!(bucket.wait(&rate, MS(1000)), MS(1000));
        assert!(!bucket.is_full(MS(1999)) && bucket.is_full(MS(2000)));
        assert_eq!(bucket.take(&rate, MS(2000)), Ok(()));
    }

    #[test]
    fn every_rate_and_every_time_is_valid() {
        for rate in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0] {
            let (rate, mut bucket) = (TokenRate::per_second(rate), TokenBucket::default());
            assert_eq!(bucket.take(&rate, Duration::MAX), Ok(()), "{rate:?}");
            let _ = bucket.wait(&rate, Duration::ZERO);
        }
        let (never, mut bucket) = (TokenRate::new(Duration::MAX, 2), TokenBucket::default());
        let taken = (0..100).filter(|second| bucket.take(&never, MS(*second * 1000)).is_ok()).count();
        assert_eq!(taken, 2, "a rate of zero admits only its burst");
        assert_eq!(TokenBucket::default().take(&TokenRate::new(MS(1), 0), MS(5000)), Err(Duration::MAX));
    }
}
