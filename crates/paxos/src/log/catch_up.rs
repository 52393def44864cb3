//! Catching up: a leader sends a follower the missing entries, or the snapshot that replaces them.

use super::node::{Output, Role};
use super::{Append, Entry, Message, Node, Payload, Record, Snapshot, Term};
use crate::{NodeId, Slot};

impl<V: Clone, S: Clone> Node<V, S> {
    /// Sends the next batch of missing entries to a follower, or an empty heartbeat if it is up to date. If the leader
    /// has compacted the missing entries, it sends its snapshot.
    pub(super) fn catch_up(&mut self, node: NodeId) {
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(follower) = leader.followers.iter_mut().find(|follower| follower.node == node) else {
            return;
        };
        let (term, inherited) = (leader.term, leader.inherited);
        let Some(before) = self.store.mark(Slot(follower.next.0.saturating_sub(1))) else {
            let snapshot = self.store.snapshot().clone();
            self.outputs.push(Output::Send(node, Message::Install { term, inherited, snapshot }));
            return;
        };
        let mut entries = self.store.from(follower.next).iter().take(self.options.batch).cloned();
        let entry = entries.next();
        let more: Vec<_> = entries.collect();
        if follower.streams {
            follower.next.0 += more.len() as u64 + u64::from(entry.is_some());
        }
        let decided = self.store.decided();
        let append = Append { term, before, entry, more, inherited, decided };
        self.outputs.push(Output::Send(node, Message::Append(append)));
    }

    /// Handles a leader's snapshot, which replaces entries that the leader has compacted.
    pub(super) fn install(&mut self, from: NodeId, term: Term, inherited: Slot, snapshot: Snapshot<S>) {
        if !self.heed(from, term) {
            return;
        }
        let slot = snapshot.last.slot;
        if !Self::is_sound(&snapshot) {
            return;
        }
        if slot > self.store.decided() {
            self.rest_on(snapshot);
        }
        self.accept(from, term, slot, inherited);
    }

    /// Compacts the log: replaces the decided entries up to a slot with the state that they produced.
    pub(super) fn compact(&mut self, through: Slot, state: S) {
        let base = self.store.snapshot();
        let Some(last) = self.store.mark(through).filter(|_| through <= self.store.decided()) else { return };
        if through <= base.last.slot {
            return;
        }
        let count = usize::try_from(through.0 - base.last.slot.0).unwrap_or(usize::MAX);
        let entries = self.store.from(base.last.slot.next()).iter().take(count).enumerate();
        let change = |(place, entry): (usize, &Entry<V>)| match &entry.payload {
            Payload::Configuration(configuration) => {
                Some((Slot(base.last.slot.0 + place as u64 + 2), configuration.clone()))
            }
            _ => None,
        };
        let latest = entries.filter_map(change).last();
        let (start, configuration) = latest.unwrap_or((base.start, base.configuration.clone()));
        self.keep(Record::Snapshot(Snapshot { last, start, configuration, state }));
    }
}
