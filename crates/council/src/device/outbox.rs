//! The mail messages to post, until a majority of the acceptors has stored them.

use std::collections::{BTreeMap, BTreeSet};

use holdoff_paxos::NodeId;

use super::learning::is_majority;
use super::{Device, Mail, Out, Record};
use crate::machine::Machine;
use crate::{AcceptorRequest, OperationId};

/// Mail messages that are not known to be stored by a majority.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: BTreeMap<OperationId, Mail>,
    posted: BTreeMap<OperationId, BTreeSet<NodeId>>,
    again_us: u64,
    times: u32,
}

impl Outbox {
    pub(super) fn keep(&mut self, id: OperationId, mail: Mail) {
        self.waiting.insert(id, mail);
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
    pub fn unposted_mail(&self) -> impl Iterator<Item = (&OperationId, &Mail)> {
        self.outbox.waiting.iter()
    }

    pub(super) fn repost_mail(&mut self, out: &mut Out<'_, M::Change>) {
        if self.outbox.waiting.is_empty() || self.outbox.again_us > out.now_us {
            return;
        }
        for (id, Mail { to, message }) in &self.outbox.waiting {
            for acceptor in self.state.machine().acceptors().keys() {
                out.request(*acceptor, AcceptorRequest::Post { id: *id, to: *to, message: message.clone() });
            }
        }
        self.outbox.times = self.outbox.times.saturating_add(1);
        self.outbox.again_us = self.retransmit_at(self.outbox.times, out);
    }

    /// Processes an acceptor's confirmation that it has stored a mail message. When a majority has stored it, the
    /// message is safe.
    pub(super) fn posted(&mut self, from: NodeId, id: OperationId, out: &mut Out<'_, M::Change>) {
        let Some(configuration) = self.state.configuration() else { return };
        if !self.outbox.waiting.contains_key(&id) {
            return;
        }
        let posted = self.outbox.posted.entry(id).or_default();
        if configuration.contains(from) {
            posted.insert(from);
        }
        if is_majority(posted, &configuration) {
            self.outbox.forget(id);
            out.store_later(Record::Posted { id });
        }
    }
}
