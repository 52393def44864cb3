//! So many a second.

use std::time::Duration;

/// The slowest and the fastest rate that is reckoned with, so that no number given is without meaning.
const RATES: (f64, f64) = (1e-6, 1e9);

/// A bucket that fills by the clock, and holds at most one second's worth, but at least one.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: f64,
    tokens: f64,
    filled_at: Duration,
}

impl Bucket {
    /// A full bucket for so many a second.
    pub(super) fn new(rate: f64, now: Duration) -> Self {
        let rate = rate.max(RATES.0).min(RATES.1);
        Self { rate, tokens: rate.max(1.0), filled_at: now }
    }

    /// How long until there is one to take; zero if there is one.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = self.filled_at.max(now);
        self.tokens = (self.tokens + passed * self.rate).min(self.rate.max(1.0));
        let missing = 1.0 - self.tokens;
        // A sum of rounded shares may stay a hair below the whole.
        if missing < 1e-9 { Duration::ZERO } else { Duration::from_secs_f64(missing / self.rate) }
    }

    /// Takes one that is there.
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
