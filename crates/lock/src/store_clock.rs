//! Detects that the wall clock of a store was set.
//!
//! A store that measures leases by its wall clock ends all of them if the clock steps forward, and prolongs them if it
//! steps back. The core compares each reading of that clock with the own clock, which no user can set.

use std::time::Duration;

use holdoff_policy::as_micros_i64;

/// The smallest step that is reported. Shorter leases are too short for any store.
const SMALLEST_STEP: Duration = Duration::from_millis(500);
/// The part of the time by which a clock may gain on the other while it is corrected without a step: a hundredth.
const DRIFT: u32 = 100;

/// The wall clock of a store, as its clients see it.
#[derive(Default, Debug)]
pub(crate) struct StoreClock {
    last: Option<Offset>,
    /// When the last step was seen. Requests that were sent before may have been executed before the step.
    stepped_at: Duration,
}

/// The time of the store less the own time, in microseconds: the store read its clock between request and response.
#[derive(Clone, Copy, Debug)]
struct Offset {
    least: i64,
    most: i64,
    seen_at: Duration,
}

/// A step of the store's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClockStep {
    Forward(Duration),
    Backward(Duration),
}

impl StoreClock {
    /// Takes a reading of the store's clock, made between two readings of the own clock. Returns the step, if the
    /// store's clock was set since the last reading.
    pub(crate) fn read(&mut self, store: Duration, sent: Duration, received: Duration) -> Option<ClockStep> {
        if sent < self.stepped_at {
            return None;
        }
        let offset = |own| as_micros_i64(store).saturating_sub(as_micros_i64(own));
        let new = Offset { least: offset(received), most: offset(sent), seen_at: received };
        let last = self.last.replace(new)?;
        let drift = as_micros_i64(received.saturating_sub(last.seen_at) / DRIFT);
        let (least, most) = (last.least.saturating_sub(drift), last.most.saturating_add(drift));
        let by =
            |us: i64| u64::try_from(us).map(Duration::from_micros).ok().filter(|by| *by >= SMALLEST_STEP);
        let forward = by(new.least.saturating_sub(most)).map(ClockStep::Forward);
        let step = forward.or_else(|| by(least.saturating_sub(new.most)).map(ClockStep::Backward));
        if step.is_some() {
            self.stepped_at = received;
        } else if new.least <= most && least <= new.most {
            // A slow response must not hide a later step: the bounds only widen by the drift.
            self.last = Some(Offset { least: new.least.max(least), most: new.most.min(most), ..new });
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_step_is_reported_once_and_with_its_size() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.read(HOUR, MS * 10, MS * 12), None, "nothing to compare with");
        assert_eq!(clock.read(HOUR + MS * 100, MS * 110, MS * 112), None);
        let ahead = clock.read(HOUR * 2, MS * 210, MS * 212);
        let Some(ClockStep::Forward(by)) = ahead else { panic!("{ahead:?}") };
        assert!(by + MS * 300 > HOUR && by <= HOUR, "{by:?}");
        assert_eq!(clock.read(HOUR * 2 + MS * 100, MS * 310, MS * 312), None);
        let back = clock.read(HOUR, MS * 410, MS * 412);
        assert!(matches!(back, Some(ClockStep::Backward(by)) if by > HOUR), "{back:?}");
    }

    #[test]
    fn a_late_response_from_before_the_step_is_ignored() {
        let mut clock = StoreClock::default();
        clock.read(HOUR, MS, MS * 2);
        assert!(clock.read(HOUR * 2, MS * 20, MS * 21).is_some());
        assert_eq!(clock.read(HOUR + MS * 15, MS * 15, MS * 30), None);
        assert_eq!(clock.read(HOUR * 2 + MS * 20, MS * 40, MS * 41), None);
    }

    #[test]
    fn a_slow_response_does_not_hide_a_step() {
        let mut clock = StoreClock::default();
        clock.read(HOUR, MS, MS);
        assert_eq!(
            clock.read(HOUR + MS * 8000, MS * 2, MS * 10_000),
            None,
            "it may have waited for eight seconds"
        );
        let step = clock.read(HOUR + MS * 16_001, MS * 10_001, MS * 10_001);
        assert!(matches!(step, Some(ClockStep::Forward(by)) if by > MS * 5000), "{step:?}");
    }

    proptest! {
        /// Whatever the latencies, and although one clock is a percent faster.
        #[test]
        fn a_clock_that_is_not_set_reports_no_step(
            drift in -10_000_i64..=10_000,
            readings in prop::collection::vec((0_u64..60_000, 0_u64..5_000, 0_u64..=1000), 1..50),
        ) {
            let (mut clock, mut now) = (StoreClock::default(), 0);
            for (pause, latency, thousandths) in readings {
                let sent = now + pause;
                now = sent + latency;
                let read_us = sent * 1000 + latency * thousandths;
                let drifted_us = read_us.saturating_add_signed(i64::try_from(read_us).unwrap() * drift / 1_000_000);
                let store = HOUR + Duration::from_micros(drifted_us);
                let step = clock.read(store, Duration::from_millis(sent), Duration::from_millis(now));
                prop_assert_eq!(step, None);
            }
        }

        /// The step is above the latency of the two readings around it.
        #[test]
        fn every_step_is_reported(
            latencies in prop::collection::vec(0_u64..1_000, 2..20),
            step_ms in prop_oneof![2_000_i64..100_000, -100_000_i64..-2_000],
        ) {
            // The own clock starts an hour before the first reading.
            let (mut clock, mut now_ms, ms) = (StoreClock::default(), 3_600_000, Duration::from_millis);
            for latency in &latencies {
                clock.read(ms(now_ms), ms(now_ms), ms(now_ms + latency));
                now_ms += latency + 100;
            }
            let found = clock.read(ms(now_ms.saturating_add_signed(step_ms)), ms(now_ms), ms(now_ms));
            prop_assert_eq!(matches!(found, Some(ClockStep::Forward(_))), step_ms > 0);
            prop_assert_eq!(matches!(found, Some(ClockStep::Backward(_))), step_ms < 0);
        }
    }
}
