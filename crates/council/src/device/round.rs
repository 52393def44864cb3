//! Where this device stands in the slot that is next.

use std::collections::BTreeMap;

use holdoff_paxos::Slot;
use holdoff_paxos::slot::{Accepting, Attempt, Free, Preparing};

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

/// The highest attempts that were stored, by slot: none of them may be used again.
#[derive(Debug, Default)]
pub(super) struct Used(BTreeMap<Slot, u64>);

impl Used {
    pub(super) fn note(&mut self, attempt: Attempt) {
        let highest = self.0.entry(attempt.slot).or_default();
        *highest = attempt.attempt.max(*highest);
    }

    pub(super) fn highest(&self, slot: Slot) -> u64 {
        self.0.get(&slot).copied().unwrap_or(0)
    }

    /// Forgets slots that are decided.
    pub(super) fn tidy(&mut self, next: Slot) {
        self.0 = self.0.split_off(&next);
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
