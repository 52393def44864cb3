//! Early sending: the leader writes entries to its own disk in parallel with replicating them (Raft thesis, 10.2.1).
//!
//! An entry is decided when a majority has it on disk, and the leader need not be part of that majority. A leader may
//! therefore send entries that it has not stored, as long as it counts itself only for entries that it has stored. Its
//! term is different: no other node may hear of a term before the leader has stored it, because after a restart the
//! node would not know the term. Therefore the leader sends nothing early before the first [`Output::Stored`] of its
//! term has come back as input. From then on, while it leads in that term, it writes no records except its own entries
//! and snapshots.

use super::node::{Leader, Output, Role};
use super::{Message, Node, Term};
use crate::{Slot, planted};

impl<V: Clone, S: Clone> Node<V, S> {
    /// Returns the messages that may leave before this step is stored, and requests an [`Output::Stored`] notification.
    pub(super) fn early(&mut self) -> Vec<Output<V, S>> {
        let Role::Leader(Leader { term, stored, .. }) = &self.role else { return Vec::new() };
        if !self.options.early {
            return Vec::new();
        }
        if !self.records.is_empty() {
            self.outputs.push(Output::Stored { term: *term, slot: self.store.last() });
        }
        if stored.is_none() {
            return Vec::new();
        }
        let is_append = |output: &mut Output<V, S>| matches!(output, Output::Send(_, Message::Append(_)));
        self.outputs.extract_if(.., is_append).collect()
    }

    /// Notes that the log of this term is on disk up to a slot. The leader counts itself up to that slot.
    pub(super) fn stored(&mut self, term: Term, slot: Slot) {
        let last = self.store.last();
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.term == term {
            leader.stored = leader.stored.max(Some(slot.min(last)));
            self.count_matched();
        }
    }

    /// Returns the last slot that the leader counts itself for. Without early sending it is the last slot of the log:
    /// no message that depends on an unstored entry leaves before that entry is stored.
    pub(super) fn has_stored(&self, leader: &Leader) -> Option<Slot> {
        let tells_early = self.options.early && !planted!(CountUnstored);
        if tells_early { leader.stored } else { Some(self.store.last()) }
    }
}
