//! Counters of an acceptor for operators: since the start, and within the last minute.
//!
//! The metrics carry the same counts. But metrics cannot be read back, and they belong to the process that
//! installed their recorder.

use std::collections::BTreeMap;
use std::time::Duration;

/// The number of slices of the last minute. The oldest slice is dropped as a whole.
const SLICES: usize = 12;
const SLICE: Duration = Duration::from_secs(5);

/// The counters of an acceptor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct AcceptorStats {
    /// Requests answered since the start, by kind.
    pub requests: BTreeMap<&'static str, u64>,
    /// Requests refused since the start, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// The counts of the last minute.
    pub recent: RecentActivity,
}

/// The counts of the last minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RecentActivity {
    /// The time that these counts cover. It is less than a minute just after the start.
    pub window: Duration,
    /// Requests answered.
    pub requests: u64,
    /// Batches of requests that were answered together.
    pub batches: u64,
    /// The number of requests in the largest batch.
    pub largest_batch: u64,
    /// Commits to the disk.
    pub commits: u64,
    /// The median duration of a commit. The value is a few hundredths too high.
    pub commit_p50: Option<Duration>,
    /// The 99th percentile of the duration of a commit.
    pub commit_p99: Option<Duration>,
}

impl AcceptorStats {
    /// Returns the number of answered requests of all kinds.
    pub fn total_requests(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// Collects the counts. The caller passes the time, which never decreases.
#[derive(Debug)]
pub(super) struct StatsRecorder {
    since: Duration,
    requests: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, u64>,
    slices: [Slice; SLICES],
}

/// The counts of a few seconds.
#[derive(Clone, Debug, Default)]
struct Slice {
    /// The number of this slice, counted from the start of the clock.
    number: u64,
    requests: u64,
    batches: u64,
    largest_batch: u64,
    commits: Histogram,
}

impl StatsRecorder {
    pub(super) fn new(now: Duration) -> Self {
        Self { since: now, requests: BTreeMap::new(), refused: BTreeMap::new(), slices: Default::default() }
    }

    pub(super) fn requested(&mut self, kind: &'static str) {
        *self.requests.entry(kind).or_default() += 1;
    }

    pub(super) fn refused(&mut self, reason: &'static str) {
        *self.refused.entry(reason).or_default() += 1;
    }

    /// Counts a batch of requests that were answered together.
    pub(super) fn answered(&mut self, now: Duration, requests: usize) {
        let requests = u64::try_from(requests).unwrap_or(u64::MAX);
        if let Some(slice) = self.slice(now) {
            slice.requests += requests;
            slice.batches += 1;
            slice.largest_batch = slice.largest_batch.max(requests);
        }
    }

    /// Counts a commit.
    pub(super) fn committed(&mut self, now: Duration, took: Duration) {
        if let Some(slice) = self.slice(now) {
            slice.commits.add(took);
        }
    }

    fn slice(&mut self, now: Duration) -> Option<&mut Slice> {
        let number = number(now);
        let index = usize::try_from(number % SLICES as u64).unwrap_or(0);
        let slice = self.slices.get_mut(index)?;
        if slice.number != number {
            *slice = Slice { number, ..Slice::default() };
        }
        Some(slice)
    }

    pub(super) fn stats(&self, now: Duration) -> AcceptorStats {
        let oldest = (number(now) + 1).saturating_sub(SLICES as u64);
        let begin = SLICE.saturating_mul(u32::try_from(oldest).unwrap_or(u32::MAX)).max(self.since);
        let mut recent = RecentActivity { window: now.saturating_sub(begin), ..RecentActivity::default() };
        let mut commits = Histogram::default();
        for slice in self.slices.iter().filter(|slice| slice.number >= oldest) {
            recent.requests += slice.requests;
            recent.batches += slice.batches;
            recent.largest_batch = recent.largest_batch.max(slice.largest_batch);
            commits.merge(&slice.commits);
        }
        recent.commits = commits.count;
        recent.commit_p50 = commits.within(50);
        recent.commit_p99 = commits.within(99);
        AcceptorStats { requests: self.requests.clone(), refused: self.refused.clone(), recent }
    }
}

fn number(now: Duration) -> u64 {
    now.as_secs() / SLICE.as_secs()
}

/// A histogram of durations in microseconds. The width of each bucket is an eighth of its power of two.
#[derive(Clone, Debug, Default)]
struct Histogram {
    count: u64,
    /// The buckets up to the highest that was needed.
    buckets: Vec<u64>,
}

impl Histogram {
    /// The upper limit of a duration, about 19 hours. Longer durations count as this one.
    const LONGEST_US: u64 = (1 << 36) - 1;

    fn add(&mut self, took: Duration) {
        let us = holdoff_policy::as_micros_u64(took).min(Self::LONGEST_US);
        let bucket = bucket_of(us);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
            self.count += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.count += other.count;
    }

    /// Returns the upper bound of the duration of this percentage of the events.
    fn within(&self, percent: u64) -> Option<Duration> {
        let wanted = (self.count * percent).div_ceil(100);
        let mut passed = 0;
        let reached = self.buckets.iter().position(|count| {
            passed += count;
            passed >= wanted
        });
        let reached = reached.filter(|_| self.count > 0)?;
        Some(Duration::from_micros(end_of(reached)))
    }
}

/// Returns the bucket of a duration: eight buckets for each power of two, and one bucket for each number below
/// eight.
fn bucket_of(us: u64) -> usize {
    let bucket = match us.checked_ilog2() {
        Some(power @ 3..) => u64::from(power - 2) * 8 + ((us >> (power - 3)) & 7),
        _ => us,
    };
    usize::try_from(bucket).unwrap_or(usize::MAX)
}

/// Returns the longest duration that a bucket counts.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket / 8 {
        0 => bucket,
        power => ((8 + bucket % 8 + 1) << (power - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_duration_is_counted_in_the_tightest_bucket() {
        for us in (0..5000).chain([1 << 20, (1 << 20) + 1, Histogram::LONGEST_US]) {
            let bucket = bucket_of(us);
            assert!(us <= end_of(bucket), "{us}");
            assert!(bucket == 0 || us > end_of(bucket - 1), "{us}");
            assert!(end_of(bucket) - us <= us / 8, "{us} us are counted as {} us", end_of(bucket));
        }
    }

    #[test]
    fn the_median_and_the_99th_percentile_differ() {
        let mut counting = StatsRecorder::new(at(100));
        for us in 1..=1000 {
            counting.committed(at(101), Duration::from_micros(us));
        }
        let RecentActivity { commits, commit_p50, commit_p99, .. } = counting.stats(at(102)).recent;
        assert_eq!(commits, 1000);
        let [half, almost] = [commit_p50, commit_p99].map(|time| time.unwrap().as_micros());
        assert!(
            (500..=563).contains(&half) && (990..=1114).contains(&almost),
            "the median is {half} us, the 99th percentile {almost} us"
        );
        let nothing = StatsRecorder::new(at(100)).stats(at(160)).recent;
        assert_eq!((nothing.commit_p50, nothing.commit_p99), (None, None));
    }

    #[test]
    fn counts_older_than_a_minute_are_dropped() {
        let mut counting = StatsRecorder::new(at(1002));
        counting.answered(at(1003), 7);
        counting.requested("fetch");
        let stats = counting.stats(at(1012));
        assert_eq!(
            (stats.recent.requests, stats.recent.window),
            (7, at(10)),
            "the window begins at the start"
        );
        counting.answered(at(1031), 2);
        counting.answered(at(1032), 4);
        let recent = counting.stats(at(1064)).recent;
        assert_eq!((recent.requests, recent.batches, recent.largest_batch), (6, 2, 4));
        assert_eq!(
            recent.window,
            at(1064 - 1005),
            "the window consists of whole slices and the current part of the last one"
        );
        let recent = counting.stats(at(5000)).recent;
        assert_eq!((recent.requests, recent.largest_batch), (0, 0));
        assert_eq!(counting.stats(at(5000)).total_requests(), 1, "the total count keeps old requests");
        counting.answered(at(5000), 1);
        assert_eq!(counting.stats(at(5001)).recent.requests, 1, "a reused slice contains no older counts");
    }
}
