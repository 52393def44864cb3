//! How long something took, many times.

use std::time::Duration;

use crate::measure::now;

/// How long something took, each time.
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

    /// So many of a thousand took no longer, in milliseconds.
    pub(crate) fn ms(&mut self, thousandths: usize) -> f64 {
        self.0.sort_unstable();
        let place = (self.0.len() * thousandths / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(place).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}

/// How long this took.
pub(crate) fn timed<E: ToString>(run: impl FnOnce() -> Result<(), E>) -> Result<Duration, String> {
    let start = now();
    run().map_err(|error| error.to_string())?;
    Ok(start.elapsed())
}
