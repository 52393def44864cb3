//! The mail messages to post, until a majority of the acceptors has stored them.

use std::collections::{BTreeMap, BTreeSet};

use holdoff_paxos::NodeId;

use super::learning::is_majority;
use super::{Device, Letter, Out, Record};
use crate::machine::Machine;
use crate::{Ask, OperationId};

/// Mail messages that are not known to be stored by a majority.
#[derive(Default)]
pub(super) struct Letters {
    waiting: BTreeMap<OperationId, Letter>,
    posted: BTreeMap<OperationId, BTreeSet<NodeId>>,
    again_us: u64,
    times: u32,
}

impl Letters {
    pub(super) fn keep(&mut self, id: OperationId, letter: Letter) {
        self.waiting.insert(id, letter);
        (self.again_us, self.times) = (0, 0);
    }

    pub(super) fn forget(&mut self, id: OperationId) {
        self.waiting.remove(&id);
        self.posted.remove(&id);
    }

    pub(super) fn wakes_at_us(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.again_us)
    }
}

impl<M: Machine> Device<M> {
    /// Iterates over the mail messages that are not posted yet.
    pub fn letters(&self) -> impl Iterator<Item = (&OperationId, &Letter)> {
        self.letters.waiting.iter()
    }

    pub(super) fn post_again(&mut self, out: &mut Out<'_, M::Wish>) {
        if self.letters.waiting.is_empty() || self.letters.again_us > out.now_us {
            return;
        }
        for (id, Letter { to, message }) in &self.letters.waiting {
            for acceptor in self.state.machine().acceptors().keys() {
                out.ask(*acceptor, Ask::Post { id: *id, to: *to, message: message.clone() });
            }
        }
        self.letters.times = self.letters.times.saturating_add(1);
        self.letters.again_us = self.ask_again_at(self.letters.times, out);
    }

    /// Processes an acceptor's confirmation that it has stored a mail message. When a majority has stored it, the
    /// message is safe.
    pub(super) fn posted(&mut self, from: NodeId, id: OperationId, out: &mut Out<'_, M::Wish>) {
        let Some(configuration) = self.state.configuration() else { return };
        if !self.letters.waiting.contains_key(&id) {
            return;
        }
        let posted = self.letters.posted.entry(id).or_default();
        if configuration.contains(from) {
            posted.insert(from);
        }
        if is_majority(posted, &configuration) {
            self.letters.forget(id);
            out.store_later(Record::Posted { id });
        }
    }
}
