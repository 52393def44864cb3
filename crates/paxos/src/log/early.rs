//! A leader's disk beside those of its followers: what it appends may be on its way while it is being written.
//!
//! An entry is decided when a majority has it on disk, whoever they are. So a leader may say what it has not stored, if it
//! counts itself for no more than it has. Its term is another matter: nobody may hear of that before it is stored, for
//! another life would not know of it. Hence nothing is early before the first [`Output::Stored`] of a term has come back.
//! From then on a leader writes no record but entries of its own and snapshots, as long as it leads in that term.

use super::node::{Leader, Output, Role};
use super::{Message, Node, Term};
use crate::{Slot, planted};

impl<V: Clone, S: Clone> Node<V, S> {
    /// Takes what may go before this step is stored, and asks to be told when it is.
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

    /// The log of this term is on disk up to a slot: so far this node counts itself.
    pub(super) fn stored(&mut self, term: Term, slot: Slot) {
        let last = self.store.last();
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.term == term {
            leader.stored = leader.stored.max(Some(slot.min(last)));
            self.count_matched();
        }
    }

    /// How much a leader has on disk. If nothing of it is early, nobody hears of what counts on the rest before that is
    /// stored, too.
    pub(super) fn has_stored(&self, leader: &Leader) -> Option<Slot> {
        let tells_early = self.options.early && !planted!(CountUnstored);
        if tells_early { leader.stored } else { Some(self.store.last()) }
    }
}
