//! What a member has learned: which slots are decided, and how far away the acceptors are.

use holdoff_paxos::slot::Learner;
use holdoff_paxos::{Ballot, Configuration, NodeId};

use crate::scenario::duel::wire::Operation;

/// What a member knows of each slot.
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
    /// The first slot that it does not know to be decided.
    pub(super) fn first_open(&self) -> usize {
        self.first_open
    }

    /// An acceptor has voted. Returns what was decided, if this shows it for the first time.
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

    /// A slot is decided. Returns whether that is news.
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

/// How long it takes from asking to the answers, as a member has seen it.
#[derive(Default)]
pub(super) struct RoundTrip {
    mean_us: Option<u64>,
    /// When it asked; `None` after it has asked twice and an answer may be to either.
    asked_us: Option<u64>,
}

impl RoundTrip {
    pub(super) fn ask(&mut self, now_us: u64) {
        self.asked_us = Some(now_us);
    }

    pub(super) fn ask_again(&mut self) {
        self.asked_us = None;
    }

    /// An answer has come. The latest count most: the mean moves an eighth of the way.
    pub(super) fn answered(&mut self, now_us: u64) {
        let Some(asked_us) = self.asked_us else { return };
        let seen_us = now_us - asked_us;
        self.mean_us = Some(self.mean_us.map_or(seen_us, |mean_us| (mean_us * 7 + seen_us) / 8));
    }

    /// `None` before the first answer that says something about the way.
    pub(super) fn mean_us(&self) -> Option<u64> {
        self.mean_us
    }
}
