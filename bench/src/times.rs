//! Collects durations.

use std::time::Duration;

use crate::measure::now;

/// The durations of repeated measurements.
#[derive(Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the quantile in thousandths, in milliseconds.
    pub(crate) fn ms(&mut self, thousandths: usize) -> f64 {
        self.0.sort_unstable();
        let place = (self.0.len() * thousandths / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(place).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}

/// Returns the duration of this call.
pub(crate) fn timed<E: ToString>(run: impl FnOnce() -> Result<(), E>) -> Result<Duration, String> {
    let start = now();
    run().map_err(|error| error.to_string())?;
    Ok(start.elapsed())
}
