//! The measured time between a request and its answer.

use std::time::Duration;

/// A round-trip time estimate, smoothed over the last answers as in TCP.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    guess_us: u64,
    mean_us: Option<u64>,
    deviation_us: u64,
    /// The number of timeouts since the last answer that could be measured.
    missed: u32,
}

/// The minimum and the maximum answer timeout.
const PATIENCE_US: (u64, u64) = (20_000, 2_000_000);

impl RoundTrip {
    pub(super) fn new(guess: Duration) -> Self {
        let guess_us = u64::try_from(guess.as_micros()).unwrap_or(u64::MAX);
        Self { guess_us, mean_us: None, deviation_us: 0, missed: 0 }
    }

    /// Adds the duration of an answer. Only requests that were sent once count: for a repeated request it is
    /// unknown which copy was answered.
    pub(super) fn took(&mut self, took_us: u64) {
        let mean_us = self.mean_us.unwrap_or(took_us);
        let off_us = mean_us.abs_diff(took_us);
        self.deviation_us = self.mean_us.map_or(took_us / 2, |_| (self.deviation_us * 3 + off_us) / 4);
        self.mean_us = Some((mean_us * 7 + took_us) / 8);
        self.missed = 0;
    }

    /// Counts a timeout: too few acceptors have answered in time. If the device repeated the next request just as
    /// early, it could never measure an acceptor that has become slower than the timeout, and would load it ever
    /// more. So the timeout stays longer until an answer arrives in time.
    pub(super) fn was_too_short(&mut self) {
        self.missed = self.missed.saturating_add(1);
    }

    pub(super) fn estimate_us(&self) -> u64 {
        self.mean_us.unwrap_or(self.guess_us)
    }

    /// Returns the number of timeouts since the last measured answer.
    pub(super) fn missed(&self) -> u32 {
        self.missed
    }

    /// Returns the answer timeout. The device does not repeat a request before it.
    pub(super) fn patience_us(&self) -> u64 {
        let (least, most) = PATIENCE_US;
        (self.estimate_us() * 2 + self.deviation_us * 4).clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_is_measured() {
        let mut round_trip = RoundTrip::new(Duration::from_millis(100));
        assert_eq!(round_trip.estimate_us(), 100_000);
        round_trip.took(10_000);
        assert_eq!(round_trip.estimate_us(), 10_000);
        for _ in 0..50 {
            round_trip.took(50_000);
        }
        assert!(round_trip.estimate_us().abs_diff(50_000) < 1_000);
        assert!((100_000..130_000).contains(&round_trip.patience_us()));
    }
}
