//! Agreement: all nodes decide the same entry in a slot, and reach the same state after it.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Checked, Violation};
use crate::log::simulation::machine::State;
use crate::log::{Entry, EntryPayload, LogId, Snapshot, Term};
use crate::{Configuration, NodeId, Slot};

/// The decided history, as the first node that decided each slot has it.
#[derive(Default)]
pub(crate) struct Agreement {
    history: BTreeMap<Slot, Decision>,
    states: BTreeMap<Slot, State>,
}

struct Decision {
    /// The node, and the term that it had promised.
    by: NodeId,
    term: Term,
    entry: Entry<u64>,
}

impl Agreement {
    /// Checks the entry that a node decides in a slot.
    pub(crate) fn decided(&mut self, (by, term): (NodeId, Term), slot: Slot, entry: &Entry<u64>) -> Checked {
        let first = self.history.entry(slot).or_insert_with(|| Decision { by, term, entry: entry.clone() });
        if first.entry == *entry {
            return Ok(());
        }
        let (first, second) = ((first.by, first.entry.clone()), (by, entry.clone()));
        Err(Violation::Agreement { slot, first: Box::new(first), second: Box::new(second) })
    }

    /// Checks the state of a node after a slot.
    pub(crate) fn reached(&mut self, (slot, state): (Slot, State)) -> Checked {
        let first = *self.states.entry(slot).or_insert(state);
        (first == state).then_some(()).ok_or(Violation::TwoStates(slot))
    }

    /// Returns the decided entry of a slot.
    pub(crate) fn entry(&self, slot: Slot) -> Option<&Entry<u64>> {
        self.history.get(&slot).map(|decision| &decision.entry)
    }

    /// Returns the slots that were decided in terms before this one.
    pub(crate) fn decided_before(&self, term: Term) -> impl Iterator<Item = Slot> {
        self.history.iter().filter(move |(_, decision)| decision.term < term).map(|(slot, _)| *slot)
    }

    /// Returns the last decided slot.
    pub(crate) fn last_decided(&self) -> Slot {
        self.history.keys().last().copied().unwrap_or_default()
    }

    /// Returns a part of the history after a slot, as a node with a proof would send it.
    pub(crate) fn entries_after(&self, slot: Slot, limit: usize) -> Vec<Entry<u64>> {
        let after = (Bound::Excluded(slot), Bound::Unbounded);
        self.history.range(after).take(limit).map(|(_, decision)| decision.entry.clone()).collect()
    }

    /// Returns a snapshot of the history up to a slot. `first` is the configuration of the first slot.
    pub(crate) fn snapshot_at(&self, slot: Slot, first: Configuration) -> Option<Snapshot<State>> {
        let (term, state) = (self.entry(slot)?.term, *self.states.get(&slot)?);
        let change = |(slot, decision): (&Slot, &Decision)| match &decision.entry.payload {
            EntryPayload::Configuration(voters) => Some((slot.next(), voters.clone())),
            _ => None,
        };
        let changed = self.history.range(..=slot).rev().find_map(change);
        let (start, configuration) = changed.unwrap_or((Slot(1), first));
        Some(Snapshot { last: LogId { slot, term }, start, configuration, state })
    }
}
