//! The summary of one figure over many runs.

use serde::Serialize;

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
    fn a_hundred_numbers() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let Summary { mean, se, p50, p99 } = Summary::of(&samples);
        assert_eq!((mean, p50, p99), (50.5, 50.0, 99.0));
        assert!((se - 2.901_149).abs() < 1e-6, "{se}");
        assert_eq!(Summary::of(&[7.0]), Summary { mean: 7.0, se: 0.0, p50: 7.0, p99: 7.0 });
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
