//! Where this device stands in the slot that is next.

use std::collections::BTreeMap;

use holdoff_paxos::Slot;
use holdoff_paxos::slot::{Accepting, Attempt, Free, Preparing};
use serde::{Deserialize, Serialize};

use crate::Value;

/// The slot that is next, and this device's attempts at it.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) slot: Slot,
    /// The highest attempt that stood in the way: the next one jumps over it.
    pub(super) over: u64,
    /// How often somebody stood in the way, in this slot.
    pub(super) preempted: u32,
    pub(super) phase: Phase,
}

/// What a device is doing about a slot.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a device")]
pub(super) enum Phase {
    /// Nothing.
    Resting,
    /// Somebody stood in the way.
    Waiting { until_us: u64 },
    /// Asking for promises.
    Preparing(Preparing<Value>, Sent),
    /// A majority has promised, and there is nothing to propose yet.
    Ready(Free),
    /// Asking to have a value accepted, and maybe to be promised the next slot.
    Accepting(Accepting<Value>, Sent, Ahead),
}

/// The promise of the next slot, asked for together with the vote in this one.
#[derive(Debug)]
pub(super) enum Ahead {
    /// It was not asked for, or not given.
    No,
    /// Asked for.
    Asked(Preparing<Value>),
    /// Given.
    Ready(Free),
}

/// When questions were asked, and when to ask again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at_us: u64,
    pub(super) again_us: u64,
    pub(super) times: u32,
}

/// The highest attempts that may have been used, by slot: none of them may be used again.
///
/// An attempt counts only when it is on disk. So that attempts need not wait for that, some of many slots are stored ahead;
/// a later life leaves them out, used or not.
#[derive(Debug, Default)]
pub(super) struct Used {
    highest: BTreeMap<Slot, u64>,
    /// What an earlier life may have used.
    spent: Reserve,
    /// What this one may use.
    reserved: Reserve,
    /// And may once it is on disk.
    asked: Reserve,
}

/// The attempts up to a number, at all slots up to one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Reserve {
    /// The last of the slots.
    pub through: Slot,
    /// The last of the attempts at each of them.
    pub attempt: u64,
}

impl Reserve {
    /// So much is reserved at a time.
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
    /// An earlier life has reserved these.
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

    /// Whether this attempt is on disk already, and of this life.
    pub(super) fn is_reserved(&self, attempt: Attempt) -> bool {
        self.reserved.covers(attempt) && !self.spent.covers(attempt)
    }

    /// What to reserve, if it is time to do so again.
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

    /// Everything that was to be stored is.
    pub(super) fn are_stored(&mut self) {
        self.reserved = self.asked;
    }

    /// Forgets slots that are decided.
    pub(super) fn tidy(&mut self, next: Slot) {
        self.highest = self.highest.split_off(&next);
    }
}

impl Round {
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot, over: 0, preempted: 0, phase: Phase::Resting }
    }

    /// Goes to a later slot, where nothing was tried yet.
    pub(super) fn at_least(&mut self, slot: Slot) {
        if self.slot < slot {
            *self = Self::new(slot);
        }
    }

    pub(super) fn is_resting(&self) -> bool {
        matches!(self.phase, Phase::Resting)
    }

    /// Whether nothing is asked and nothing waited for: at rest, or with a promise in hand and nothing to propose.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Resting | Phase::Ready(_))
    }

    /// Whether a majority has promised this slot, and what is wanted next can be proposed at once.
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
