//! How long a question and its answer take.

use std::time::Duration;

/// Smoothed over the last answers, in the manner of TCP.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    guess_us: u64,
    mean_us: Option<u64>,
    deviation_us: u64,
    /// How often patience was too short since the last answer that could be measured.
    doubled: u32,
}

/// The least and the most time after which a question is asked again.
const PATIENCE_US: (u64, u64) = (20_000, 2_000_000);
/// It is doubled so often, and further up to so long: whoever is overrun may need that to catch its breath.
const DOUBLED: u32 = 5;
const LONG_US: u64 = 4_000_000;

impl RoundTrip {
    pub(super) fn new(guess: Duration) -> Self {
        let guess_us = u64::try_from(guess.as_micros()).unwrap_or(u64::MAX);
        Self { guess_us, mean_us: None, deviation_us: 0, doubled: 0 }
    }

    /// An answer took so long. Only of questions asked once: of others nobody knows which was answered.
    pub(super) fn took(&mut self, took_us: u64) {
        let mean_us = self.mean_us.unwrap_or(took_us);
        let off_us = mean_us.abs_diff(took_us);
        self.deviation_us = self.mean_us.map_or(took_us / 2, |_| (self.deviation_us * 3 + off_us) / 4);
        self.mean_us = Some((mean_us * 7 + took_us) / 8);
        self.doubled = 0;
    }

    /// Too few have answered in time. Whoever has become slower than that is never measured if the next question is
    /// repeated as soon, and has ever more to answer: so patience stays longer until an answer comes in time.
    pub(super) fn was_too_short(&mut self) {
        self.doubled = (self.doubled + 1).min(2 * DOUBLED);
    }

    pub(super) fn estimate_us(&self) -> u64 {
        self.mean_us.unwrap_or(self.guess_us)
    }

    /// How long to wait for an answer before asking again.
    pub(super) fn patience_us(&self) -> u64 {
        let (least, most) = PATIENCE_US;
        let patience_us = (self.estimate_us() * 2 + self.deviation_us * 4).clamp(least, most);
        (patience_us << self.doubled).min((patience_us << DOUBLED).max(LONG_US))
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

    #[test]
    fn who_has_become_slow_is_waited_for_until_it_can_be_measured() {
        let mut round_trip = RoundTrip::new(Duration::from_millis(100));
        round_trip.took(10_000);
        let slow_us = 3_000_000;
        for _ in 0..10 {
            round_trip.was_too_short();
        }
        assert!((slow_us..=LONG_US).contains(&round_trip.patience_us()));
        round_trip.took(slow_us);
        assert!(round_trip.estimate_us() > 300_000, "it is measured again");
    }
}
