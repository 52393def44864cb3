//! Counts over virtual time.

use serde::Serialize;

/// Counts over virtual time, in buckets of equal width.
///
/// It never holds more than [`MAX_BUCKETS`](Self::MAX_BUCKETS): a longer run gets buckets of twice the width. Runs of
/// any length can therefore be added up, in any order, with the same result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Series {
    bucket_us: u64,
    counts: Vec<u64>,
}

impl Default for Series {
    fn default() -> Self {
        Self { bucket_us: Self::FINEST_US, counts: Vec::new() }
    }
}

impl Series {
    /// The largest number of buckets.
    pub const MAX_BUCKETS: usize = 512;

    /// The width of a bucket in a short run: a millisecond.
    pub const FINEST_US: u64 = 1_000;

    /// Returns the width of a bucket.
    pub fn bucket_us(&self) -> u64 {
        self.bucket_us
    }

    /// Returns the counts; the first bucket starts at time 0.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Counts one event at this time.
    #[inline]
    pub fn count(&mut self, at_us: u64) {
        self.add_at(at_us, 1);
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        let mut at_us = 0_u64;
        self.widen_to(other.bucket_us);
        for count in &other.counts {
            self.add_at(at_us, *count);
            at_us = at_us.saturating_add(other.bucket_us);
        }
    }

    fn add_at(&mut self, at_us: u64, count: u64) {
        let mut bucket = at_us / self.bucket_us;
        while bucket >= Self::MAX_BUCKETS as u64 {
            self.widen_to(self.bucket_us.saturating_mul(2));
            bucket = at_us / self.bucket_us;
        }
        let bucket = usize::try_from(bucket).unwrap_or(0);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(place) = self.counts.get_mut(bucket) {
            *place += count;
        }
    }

    fn widen_to(&mut self, bucket_us: u64) {
        while self.bucket_us < bucket_us {
            self.bucket_us = self.bucket_us.saturating_mul(2);
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_adding_does_not_matter() {
        let times: [&[u64]; 3] = [&[0, 999, 1_000, 400_000], &[7_000_000_000, 5], &[600_000]];
        let runs = times.map(|times| {
            let mut series = Series::default();
            for at_us in times {
                series.count(*at_us);
            }
            series
        });
        let sum = |order: [usize; 3]| {
            order.iter().fold(Series::default(), |mut sum, run| {
                sum.add(&runs[*run]);
                sum
            })
        };
        assert_eq!(sum([0, 1, 2]), sum([2, 1, 0]));
        assert_eq!(sum([0, 1, 2]), sum([1, 0, 2]));
        assert_eq!(sum([0, 1, 2]).total(), 7);
    }

    #[test]
    fn it_stays_small() {
        let mut series = Series::default();
        series.count(u64::MAX / 2);
        series.count(0);
        assert!(series.counts().len() <= Series::MAX_BUCKETS);
        assert_eq!(series.total(), 2);
    }
}
