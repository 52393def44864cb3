//! Statistics of runs: histograms, series over time, pooled samples and summaries.

use serde::{Serialize, Serializer};

/// A histogram of delays with four buckets for each doubling.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
}

/// The delays of one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct HistogramBucket {
    /// The lower bound, inclusive.
    pub from_us: u64,
    /// The upper bound, exclusive.
    pub to_us: u64,
    /// The number of delays.
    pub count: u64,
}

impl Histogram {
    /// Counts one delay.
    #[inline]
    pub fn count(&mut self, delay_us: u64) {
        let bucket = bucket_of(delay_us);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, others) in self.counts.iter_mut().zip(&other.counts) {
            *count += others;
        }
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the non-empty buckets, shortest delays first.
    pub fn buckets(&self) -> impl Iterator<Item = HistogramBucket> + '_ {
        let occupied = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        occupied.map(|(bucket, count)| HistogramBucket {
            from_us: start_of(bucket),
            to_us: start_of(bucket + 1),
            count: *count,
        })
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.buckets())
    }
}

/// Returns the bucket of a value. Values below 4 have a bucket each; above, the leading bit and the two bits after it
/// select the bucket.
fn bucket_of(value: u64) -> usize {
    let Some(octave) = value.checked_ilog2().filter(|octave| *octave >= 2) else {
        return usize::try_from(value).unwrap_or(0);
    };
    let quarter = (value >> (octave - 2)) & 3;
    octave as usize * 4 - 4 + usize::try_from(quarter).unwrap_or(0)
}

fn start_of(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / 4, bucket as u64 % 4);
    let Some(doublings) = octave.checked_sub(1) else { return quarter };
    u32::try_from(doublings).ok().and_then(|by| (4 + quarter).checked_shl(by)).unwrap_or(u64::MAX)
}

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

/// Times of which each run has many, pooled over all runs.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Pooled {
    /// The number of times.
    pub count: usize,
    /// Their summary, in milliseconds.
    #[serde(flatten)]
    pub ms: Summary,
    /// The longest time, in milliseconds.
    pub worst_ms: f64,
    /// All times in microseconds, in ascending order.
    #[serde(skip)]
    pub sorted_us: Vec<u64>,
}

impl Pooled {
    /// Pools the times. Their order does not matter.
    pub fn of(mut times_us: Vec<u64>) -> Self {
        times_us.sort_unstable();
        let ms: Vec<f64> = times_us.iter().map(|us| crate::Micros(*us).as_f64() / 1000.0).collect();
        let worst_ms = ms.last().copied().unwrap_or(0.0);
        Self { count: ms.len(), ms: Summary::of(&ms), worst_ms, sorted_us: times_us }
    }
}

/// The summary of one figure over many runs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// The standard error of the mean; 0 for a single run.
    pub se: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Summary {
    /// Summarises samples. Their order determines the last bits of the mean, so the caller must use a fixed order.
    pub fn of(samples: &[f64]) -> Self {
        if samples.is_empty() {
            return Self::default();
        }
        let count = number(samples.len());
        let mean = samples.iter().sum::<f64>() / count;
        let squares = samples.iter().map(|sample| (sample - mean) * (sample - mean)).sum::<f64>();
        let se = if count > 1.0 { (squares / (count - 1.0) / count).sqrt() } else { 0.0 };
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { mean, se, p50: at_percent(&sorted, 50), p99: at_percent(&sorted, 99) }
    }
}

/// Returns the percentile: the smallest sample that `percent` of a hundred samples do not exceed.
fn at_percent(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer runs than 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..100_000).chain([1 << 40, (1 << 50) + 12_345]) {
            let bucket = bucket_of(value);
            assert!((start_of(bucket)..start_of(bucket + 1)).contains(&value), "{value} in {bucket}");
        }
    }

    #[test]
    fn histograms_add_up_in_any_order() {
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
    fn a_series_has_a_bounded_number_of_points() {
        let mut series = Series::default();
        series.count(u64::MAX / 2);
        series.count(0);
        assert!(series.counts().len() <= Series::MAX_BUCKETS);
        assert_eq!(series.total(), 2);
    }

    #[test]
    fn pooled_samples_need_no_order() {
        let pooled = Pooled::of((1..=200).rev().map(|ms| ms * 1000).collect());
        assert_eq!(pooled, Pooled::of((1..=200).map(|ms| ms * 1000).collect()));
        assert_eq!((pooled.count, pooled.ms.p50, pooled.ms.p99, pooled.worst_ms), (200, 100.0, 198.0, 200.0));
        assert_eq!(Pooled::of(Vec::new()), Pooled::default());
    }

    #[test]
    fn a_hundred_samples_are_summarised() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let Summary { mean, se, p50, p99 } = Summary::of(&samples);
        assert_eq!((mean, p50, p99), (50.5, 50.0, 99.0));
        assert!((se - 2.901_149).abs() < 1e-6, "{se}");
        assert_eq!(Summary::of(&[7.0]), Summary { mean: 7.0, se: 0.0, p50: 7.0, p99: 7.0 });
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
