//! The knowledge of a member: the decided slots, and the round trip to the acceptors.

use holdoff_paxos::slot::Learner;
use holdoff_paxos::{Ballot, Configuration, NodeId};

use crate::scenario::duel::wire::Operation;

/// The knowledge of a member about each slot.
#[derive(Default)]
pub(super) struct Knowledge {
    slots: Vec<Known>,
    first_open: usize,
}

enum Known {
    Decided,
    Open(Learner<Operation>),
}

impl Knowledge {
    /// Returns the first slot that the member does not know to be decided.
    pub(super) fn first_open(&self) -> usize {
        self.first_open
    }

    /// Counts the vote of an acceptor. Returns the decided operation if this vote is the first to show it.
    pub(super) fn vote(
        &mut self,
        slot: usize,
        from: NodeId,
        ballot: Ballot,
        operation: Operation,
        configuration: &Configuration,
    ) -> Option<Operation> {
        let Known::Open(learner) = self.known(slot, configuration)? else { return None };
        let chosen = learner.accepted(from, ballot, operation)?;
        self.decide(slot, configuration).then_some(chosen.value)
    }

    /// Marks a slot as decided. Returns whether it was unknown before.
    pub(super) fn decide(&mut self, slot: usize, configuration: &Configuration) -> bool {
        let Some(known @ Known::Open(_)) = self.known(slot, configuration) else { return false };
        *known = Known::Decided;
        while matches!(self.slots.get(self.first_open), Some(Known::Decided)) {
            self.first_open += 1;
        }
        true
    }

    fn known(&mut self, slot: usize, configuration: &Configuration) -> Option<&mut Known> {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || Known::Open(Learner::new(configuration.clone())));
        }
        self.slots.get_mut(slot)
    }
}

/// The measured time from a request to its answers.
#[derive(Default)]
pub(super) struct RoundTrip {
    mean_us: Option<u64>,
    /// The time of the request. `None` after a second request, because an answer may belong to either.
    asked_us: Option<u64>,
}

impl RoundTrip {
    pub(super) fn ask(&mut self, now_us: u64) {
        self.asked_us = Some(now_us);
    }

    pub(super) fn ask_again(&mut self) {
        self.asked_us = None;
    }

    /// Records an answer. The mean moves an eighth of the way, so the latest answers count most.
    pub(super) fn answered(&mut self, now_us: u64) {
        let Some(asked_us) = self.asked_us else { return };
        let seen_us = now_us - asked_us;
        self.mean_us = Some(self.mean_us.map_or(seen_us, |mean_us| (mean_us * 7 + seen_us) / 8));
    }

    /// Returns the mean, or `None` before the first answer that belongs to exactly one request.
    pub(super) fn mean_us(&self) -> Option<u64> {
        self.mean_us
    }
}
