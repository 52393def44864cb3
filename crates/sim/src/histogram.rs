//! A histogram of delays.

use serde::{Serialize, Serializer};

/// A histogram of delays with four buckets for each doubling.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
}

/// The delays of one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Bucket {
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
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let occupied = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        occupied.map(|(bucket, count)| Bucket {
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
}
