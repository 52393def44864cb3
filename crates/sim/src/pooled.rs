//! Samples pooled over many runs.

use serde::Serialize;

use crate::Summary;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_does_not_matter() {
        let pooled = Pooled::of((1..=200).rev().map(|ms| ms * 1000).collect());
        assert_eq!(pooled, Pooled::of((1..=200).map(|ms| ms * 1000).collect()));
        assert_eq!((pooled.count, pooled.ms.p50, pooled.ms.p99, pooled.worst_ms), (200, 100.0, 198.0, 200.0));
        assert_eq!(Pooled::of(Vec::new()), Pooled::default());
    }
}
