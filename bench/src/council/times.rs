//! How long something took, many times.

use std::time::Duration;

/// How long something took, each time.
#[derive(Default)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    pub(super) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(super) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// So many of a thousand took no longer, in milliseconds.
    pub(super) fn ms(&mut self, thousandths: usize) -> f64 {
        self.0.sort_unstable();
        let place = (self.0.len() * thousandths / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(place).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}
