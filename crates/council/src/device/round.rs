//! The progress of this device in the next slot.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_paxos::Slot;
use holdoff_paxos::slot::{Accepting, BallotRecord, Free, Preparing};
use serde::{Deserialize, Serialize};

use crate::SlotValue;

/// The next slot, and the attempts of this device at it.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) slot: Slot,
    /// The highest attempt that preempted this device. The next attempt must be higher.
    pub(super) over: u64,
    /// The number of times that this device was preempted in this slot.
    pub(super) preempted: u32,
    /// Whether an acceptor had no room for the value.
    pub(super) is_full: bool,
    pub(super) phase: Phase,
}

/// The phase of a device in a slot.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a device has one value of this type")]
pub(super) enum Phase {
    /// No activity.
    Resting,
    /// The device was preempted and waits.
    Waiting { until_us: u64 },
    /// The device requests promises.
    Preparing(Preparing<SlotValue>, RequestTiming),
    /// A majority has promised, and the device has no operations to propose yet.
    Ready(Free),
    /// The device requests votes for a value, and possibly the promise of the next slot.
    Accepting(Accepting<SlotValue>, RequestTiming, Lookahead),
}

/// The promise of the next slot, requested together with the votes for this one.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a device has one value of this type")]
pub(super) enum Lookahead {
    /// Not requested, or refused.
    No,
    /// Requested.
    Requested(Preparing<SlotValue>),
    /// Granted.
    Ready(Free),
}

/// The time of the last request, and the time to repeat it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTiming {
    pub(super) at_us: u64,
    pub(super) again_us: u64,
    pub(super) times: u32,
}

/// The highest attempt that may have been used, for each slot. The device must not use any attempt up to it again.
///
/// The device may use an attempt only when it is on disk. To avoid a wait for each attempt, the device stores a
/// reserve of attempts for many slots in advance. A later process skips the whole reserve, used or not.
#[derive(Debug, Default)]
pub(super) struct UsedAttempts {
    highest: BTreeMap<Slot, u64>,
    /// The attempts that an earlier process may have used.
    spent: AttemptReserve,
    /// The attempts that this process may use.
    reserved: AttemptReserve,
    /// The attempts that this process may use as soon as they are on disk.
    asked: AttemptReserve,
}

/// A reserve of attempts: all attempts up to a number, at all slots up to a last slot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct AttemptReserve {
    /// The last slot.
    pub through: Slot,
    /// The last attempt at each slot.
    pub attempt: u64,
}

impl AttemptReserve {
    /// The size of a reserve.
    const SLOTS: u64 = 256;
    const ATTEMPTS: u64 = 4;

    fn covers(self, attempt: BallotRecord) -> bool {
        attempt.attempt <= self.highest(attempt.slot)
    }

    fn highest(self, slot: Slot) -> u64 {
        if slot <= self.through { self.attempt } else { 0 }
    }
}

impl UsedAttempts {
    /// Restores the reserve of an earlier process.
    pub(super) fn restore(&mut self, reserve: AttemptReserve) {
        (self.spent, self.reserved, self.asked) = (reserve, reserve, reserve);
    }

    pub(super) fn note(&mut self, attempt: BallotRecord) {
        let highest = self.highest.entry(attempt.slot).or_default();
        *highest = attempt.attempt.max(*highest);
    }

    pub(super) fn highest(&self, slot: Slot) -> u64 {
        self.highest.get(&slot).copied().unwrap_or(0).max(self.spent.highest(slot))
    }

    /// Returns whether this attempt belongs to a reserve of this process that is on disk.
    pub(super) fn is_reserved(&self, attempt: BallotRecord) -> bool {
        self.reserved.covers(attempt) && !self.spent.covers(attempt)
    }

    /// Returns the next reserve to store, if it is time for one.
    pub(super) fn reserve(&mut self, applied: Slot) -> Option<AttemptReserve> {
        let is_of_this_incarnation = self.asked.attempt > self.spent.highest(applied.next());
        if is_of_this_incarnation && self.asked.through.0 >= applied.0 + AttemptReserve::SLOTS / 2 {
            return None;
        }
        let through = Slot(applied.0.saturating_add(AttemptReserve::SLOTS)).max(self.asked.through);
        let attempt = self.spent.highest(applied.next()).saturating_add(AttemptReserve::ATTEMPTS);
        self.asked = AttemptReserve { through, attempt: attempt.max(self.asked.attempt) };
        Some(self.asked)
    }

    /// Returns the last reserve that the device has requested from its disk.
    pub(super) fn asked(&self) -> AttemptReserve {
        self.asked
    }

    /// Notes that this reserve is on disk. Later reserves are never smaller.
    pub(super) fn stored(&mut self, reserve: AttemptReserve) {
        self.reserved = reserve;
    }

    /// Removes the slots that are decided.
    pub(super) fn tidy(&mut self, next: Slot) {
        self.highest = self.highest.split_off(&next);
    }
}

impl Round {
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot, over: 0, preempted: 0, is_full: false, phase: Phase::Resting }
    }

    /// Moves on to this slot, if it is later than the current one. There are no attempts at it yet.
    pub(super) fn at_least(&mut self, slot: Slot) {
        if self.slot < slot {
            *self = Self::new(slot);
        }
    }

    pub(super) fn is_resting(&self) -> bool {
        matches!(self.phase, Phase::Resting)
    }

    /// Returns whether the device neither waits nor has requests in progress: no activity, or a promise without an
    /// operation to propose.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Resting | Phase::Ready(_))
    }

    /// Returns whether a majority has promised this slot, so that the device can propose the next operation at
    /// once.
    pub(super) fn is_promised(&self) -> bool {
        matches!(self.phase, Phase::Ready(_))
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    pub(super) fn wakes_at_us(&self) -> Option<u64> {
        match &self.phase {
            Phase::Resting | Phase::Ready(_) => None,
            Phase::Waiting { until_us } => Some(*until_us),
            Phase::Preparing(_, sent) | Phase::Accepting(_, sent, _) => Some(sent.again_us),
        }
    }
}

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
const ANSWER_TIMEOUT_US: (u64, u64) = (20_000, 2_000_000);

impl RoundTrip {
    pub(super) fn new(guess: Duration) -> Self {
        let guess_us = holdoff_policy::as_micros_u64(guess);
        Self { guess_us, mean_us: None, deviation_us: 0, missed: 0 }
    }

    /// Adds the duration of an answer. Only requests that were sent once count: for a repeated request it is
    /// unknown which copy was answered.
    pub(super) fn add_sample(&mut self, took_us: u64) {
        let mean_us = self.mean_us.unwrap_or(took_us);
        let off_us = mean_us.abs_diff(took_us);
        self.deviation_us = self.mean_us.map_or(took_us / 2, |_| (self.deviation_us * 3 + off_us) / 4);
        self.mean_us = Some((mean_us * 7 + took_us) / 8);
        self.missed = 0;
    }

    /// Counts a timeout: too few acceptors have answered in time. If the device repeated the next request just as
    /// early, it could never measure an acceptor that has become slower than the timeout, and would load it ever
    /// more. So the timeout stays longer until an answer arrives in time.
    pub(super) fn note_timeout(&mut self) {
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
    pub(super) fn answer_timeout_us(&self) -> u64 {
        let (least, most) = ANSWER_TIMEOUT_US;
        (self.estimate_us() * 2 + self.deviation_us * 4).clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_samples() {
        let mut round_trip = RoundTrip::new(Duration::from_millis(100));
        assert_eq!(round_trip.estimate_us(), 100_000);
        round_trip.add_sample(10_000);
        assert_eq!(round_trip.estimate_us(), 10_000);
        for _ in 0..50 {
            round_trip.add_sample(50_000);
        }
        assert!(round_trip.estimate_us().abs_diff(50_000) < 1_000);
        assert!((100_000..130_000).contains(&round_trip.answer_timeout_us()));
    }
}
