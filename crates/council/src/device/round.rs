//! The progress of this device in the next slot.

use std::collections::BTreeMap;

use holdoff_paxos::Slot;
use holdoff_paxos::slot::{Accepting, Attempt, Free, Preparing};
use serde::{Deserialize, Serialize};

use crate::Value;

/// The next slot, and the attempts of this device at it.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) slot: Slot,
    /// The highest attempt that preempted this device. The next attempt must be higher.
    pub(super) over: u64,
    /// The number of times that this device was preempted in this slot.
    pub(super) preempted: u32,
    pub(super) phase: Phase,
}

/// The phase of a device in a slot.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a device")]
pub(super) enum Phase {
    /// No activity.
    Resting,
    /// The device was preempted and waits.
    Waiting { until_us: u64 },
    /// The device requests promises.
    Preparing(Preparing<Value>, Sent),
    /// A majority has promised, and the device has no operations to propose yet.
    Ready(Free),
    /// The device requests votes for a value, and possibly the promise of the next slot.
    Accepting(Accepting<Value>, Sent, Ahead),
}

/// The promise of the next slot, requested together with the votes for this one.
#[derive(Debug)]
pub(super) enum Ahead {
    /// Not requested, or refused.
    No,
    /// Requested.
    Asked(Preparing<Value>),
    /// Granted.
    Ready(Free),
}

/// The time of the last request, and the time to repeat it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at_us: u64,
    pub(super) again_us: u64,
    pub(super) times: u32,
}

/// The highest attempt that may have been used, for each slot. The device must not use any attempt up to it again.
///
/// The device may use an attempt only when it is on disk. To avoid a wait for each attempt, the device stores a
/// reserve of attempts for many slots in advance. A later process skips the whole reserve, used or not.
#[derive(Debug, Default)]
pub(super) struct Used {
    highest: BTreeMap<Slot, u64>,
    /// The attempts that an earlier process may have used.
    spent: Reserve,
    /// The attempts that this process may use.
    reserved: Reserve,
    /// The attempts that this process may use as soon as they are on disk.
    asked: Reserve,
}

/// A reserve of attempts: all attempts up to a number, at all slots up to a last slot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Reserve {
    /// The last slot.
    pub through: Slot,
    /// The last attempt at each slot.
    pub attempt: u64,
}

impl Reserve {
    /// The size of a reserve.
    const SLOTS: u64 = 256;
    const ATTEMPTS: u64 = 4;

    fn covers(self, attempt: Attempt) -> bool {
        attempt.attempt <= self.highest(attempt.slot)
    }

    fn highest(self, slot: Slot) -> u64 {
        if slot <= self.through { self.attempt } else { 0 }
    }
}

impl Used {
    /// Restores the reserve of an earlier process.
    pub(super) fn restore(&mut self, reserve: Reserve) {
        (self.spent, self.reserved, self.asked) = (reserve, reserve, reserve);
    }

    pub(super) fn note(&mut self, attempt: Attempt) {
        let highest = self.highest.entry(attempt.slot).or_default();
        *highest = attempt.attempt.max(*highest);
    }

    pub(super) fn highest(&self, slot: Slot) -> u64 {
        self.highest.get(&slot).copied().unwrap_or(0).max(self.spent.highest(slot))
    }

    /// Returns whether this attempt belongs to a reserve of this process that is on disk.
    pub(super) fn is_reserved(&self, attempt: Attempt) -> bool {
        self.reserved.covers(attempt) && !self.spent.covers(attempt)
    }

    /// Returns the next reserve to store, if it is time for one.
    pub(super) fn reserve(&mut self, applied: Slot) -> Option<Reserve> {
        let of_this_life = self.asked.attempt > self.spent.highest(applied.next());
        if of_this_life && self.asked.through.0 >= applied.0 + Reserve::SLOTS / 2 {
            return None;
        }
        let through = Slot(applied.0.saturating_add(Reserve::SLOTS)).max(self.asked.through);
        let attempt = self.spent.highest(applied.next()).saturating_add(Reserve::ATTEMPTS);
        self.asked = Reserve { through, attempt: attempt.max(self.asked.attempt) };
        Some(self.asked)
    }

    /// Notes that all records so far are on disk.
    pub(super) fn are_stored(&mut self) {
        self.reserved = self.asked;
    }

    /// Removes the slots that are decided.
    pub(super) fn tidy(&mut self, next: Slot) {
        self.highest = self.highest.split_off(&next);
    }
}

impl Round {
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot, over: 0, preempted: 0, phase: Phase::Resting }
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
