//! A rate limit: a number of requests per second.

use std::time::Duration;

/// The range to which a rate is clamped, so that every number is usable.
const RATES: (f64, f64) = (1e-6, 1e9);

/// A token bucket that fills with time. Its capacity is the number of requests of one second, but at least one.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: f64,
    tokens: f64,
    filled_at: Duration,
}

impl Bucket {
    /// Creates a full bucket for this number of requests per second.
    pub(super) fn new(rate: f64, now: Duration) -> Self {
        let rate = rate.max(RATES.0).min(RATES.1);
        Self { rate, tokens: rate.max(1.0), filled_at: now }
    }

    /// Returns the time until a request is available; zero if one is.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = self.filled_at.max(now);
        self.tokens = (self.tokens + passed * self.rate).min(self.rate.max(1.0));
        let missing = 1.0 - self.tokens;
        // The sum of rounded parts may stay slightly below one.
        if missing < 1e-9 { Duration::ZERO } else { Duration::from_secs_f64(missing / self.rate) }
    }

    /// Takes one request, which must be available.
    pub(super) fn take(&mut self) {
        self.tokens -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bucket: &mut Bucket, now: Duration) -> bool {
        let there = bucket.wait(now).is_zero();
        if there {
            bucket.take();
        }
        there
    }

    #[test]
    fn a_second_holds_no_more_than_its_rate_after_the_burst() {
        let mut bucket = Bucket::new(5.0, Duration::ZERO);
        let taken = |bucket: &mut Bucket, from: u64| {
            (from..from + 1000).filter(|ms| take(bucket, Duration::from_millis(*ms))).count()
        };
        let first = taken(&mut bucket, 0);
        assert!((9..=10).contains(&first), "{first}");
        assert_eq!(taken(&mut bucket, 1000), 5);
    }

    #[test]
    fn a_slow_rate_says_when_to_come_back() {
        let mut bucket = Bucket::new(0.5, Duration::ZERO);
        assert!(take(&mut bucket, Duration::ZERO));
        assert_eq!(bucket.wait(Duration::ZERO), Duration::from_secs(2));
        assert_eq!(bucket.wait(Duration::from_secs(1)), Duration::from_secs(1));
        assert!(take(&mut bucket, Duration::from_secs(2)));
    }

    #[test]
    fn odd_rates_and_clocks_do_no_harm() {
        for rate in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0] {
            let mut bucket = Bucket::new(rate, Duration::from_secs(5));
            assert!(take(&mut bucket, Duration::MAX), "{rate}");
            let _ = bucket.wait(Duration::ZERO);
        }
    }
}
