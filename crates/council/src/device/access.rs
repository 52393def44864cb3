//! Tells the acceptors who the members are, and learns from them that this device is a member no longer.

use std::collections::BTreeSet;

use holdoff_paxos::{NodeId, Slot};

use super::learning::is_majority;
use super::round::Phase;
use super::{Device, Out};
use crate::machine::Machine;
use crate::{AcceptorRequest, Closing};

/// The acceptors that have refused a request because this device was removed in a slot that it has not applied.
#[derive(Debug, Default)]
pub(super) struct Removal {
    reporters: BTreeSet<NodeId>,
    slot: Option<Slot>,
    /// A member's statement that it recovers the council under another id.
    closing: Option<Closing>,
    /// The acceptors that are closed.
    closed_at: BTreeSet<NodeId>,
}

impl Removal {
    pub(super) fn is_closed(&self) -> bool {
        self.closing.is_some()
    }
}

impl<M: Machine> Device<M> {
    /// Returns the slot in which this device was removed, if a majority of the acceptors has reported it. The slots up to it
    /// are deleted, so the device cannot apply them.
    pub fn removed_in(&self) -> Option<Slot> {
        self.removal.slot
    }

    /// Introduces the council to an acceptor that does not know it.
    pub(super) fn introduce(&self, to: NodeId, out: &mut Out<'_, M::Change>) {
        if self.state.machine().acceptors().contains_key(&to) {
            out.request(to, self.state.introduction());
        }
    }

    /// Reports to an acceptor the changes of the members that it has missed.
    pub(super) fn report_access(&self, to: NodeId, known: Slot, out: &mut Out<'_, M::Change>) {
        let changes = self.state.access_after(known);
        if known < self.state.access() && !changes.is_empty() {
            out.request(to, AcceptorRequest::Access { changes });
        }
    }

    /// Processes a refusal by an acceptor that does not know this device as a member: the acceptor has missed changes of the
    /// members, or this device has.
    pub(super) fn not_a_member(
        &mut self,
        from: NodeId,
        access: Slot,
        removed_in: Option<Slot>,
        out: &mut Out<'_, M::Change>,
    ) {
        let Some(configuration) = self.state.configuration() else { return };
        if !configuration.contains(from) {
            return;
        }
        self.report_access(from, access, out);
        let Some(slot) = removed_in.filter(|slot| *slot > self.state.applied()) else { return };
        self.removal.reporters.insert(from);
        if self.removal.slot.is_none() && is_majority(&self.removal.reporters, &configuration) {
            self.removal.slot = Some(slot);
            // Their outcome is in slots that this device cannot read.
            let pending: Vec<_> = self.pending().collect();
            self.end_as_unknown(pending, out);
        }
    }

    /// Processes a member's statement that it has closed the council: this device stops, and closes the other
    /// acceptors, so that those that come back do not continue.
    pub(super) fn closed(&mut self, at: NodeId, closing: Closing, out: &mut Out<'_, M::Change>) {
        self.removal.closed_at.insert(at);
        let is_by_member = self.state.machine().may_propose(&closing.by);
        if self.removal.is_closed()
            || !is_by_member
            || !closing.is_signed(self.state.council(), &*self.verifier)
        {
            return;
        }
        self.removal.closing = Some(closing);
        self.round.phase = Phase::Resting;
        let pending: Vec<_> = self.pending().collect();
        self.end_as_unknown(pending, out);
    }

    /// Closes an acceptor that is not known to be closed.
    pub(super) fn close_too(&self, at: NodeId, out: &mut Out<'_, M::Change>) {
        if let Some(closing) = self.removal.closing.filter(|_| !self.removal.closed_at.contains(&at)) {
            out.request(at, AcceptorRequest::Close(closing));
        }
    }
}
