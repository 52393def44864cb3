//! Learning decided entries from a proof, independent of the leader; installing and creating snapshots.
//!
//! The node stores learned entries like a leader's, with one difference: it does not accept them in any term, so that no
//! leader counts them. The entries that they overwrite were undecided, and can no longer be decided.

use super::node::{Output, Role};
use super::{Entry, EntryPayload, EntrySize, LogId, Node, Record, Snapshot, Term};
use crate::{NodeId, Slot};

/// The highest slot that a snapshot may claim. No log becomes that long: the node ignores snapshots beyond it.
const FURTHEST: Slot = Slot(1 << 62);

impl<V: Clone + EntrySize, S: Clone> Node<V, S> {
    /// Stores entries that are proven to be decided. If they do not continue the known decided entries, the node
    /// ignores them.
    pub(super) fn learn(&mut self, first: Slot, entries: Vec<Entry<V>>) {
        let decided = self.store.decided();
        if first > decided.next() {
            return;
        }
        let mut slot = Slot(first.0.saturating_sub(1));
        for entry in entries {
            slot = slot.next();
            let id = LogId { slot, term: entry.term };
            if slot > decided && self.store.log_id(slot) != Some(id) {
                self.step_down();
                self.append(slot, entry);
            }
        }
        self.decide(slot);
        if self.store.decided() > decided {
            // A node that does not vote may never hear of this decision from a leader: store it.
            self.persist(Record::Decided(self.store.decided()));
        }
    }

    /// Installs a snapshot that is proven to cover decided slots. A snapshot of the same slots replaces the current
    /// snapshot.
    pub(super) fn restore_snapshot(&mut self, snapshot: Snapshot<S>) {
        if snapshot.last == self.store.snapshot().last {
            self.persist(Record::Snapshot(snapshot));
        } else if Self::is_sound(&snapshot) && snapshot.last.slot > self.store.decided() {
            if self.store.log_id(snapshot.last.slot) != Some(snapshot.last) {
                self.step_down();
            }
            self.install_snapshot(snapshot);
        }
    }

    pub(super) fn is_sound(snapshot: &Snapshot<S>) -> bool {
        let slot = snapshot.last.slot;
        slot <= FURTHEST && snapshot.start <= slot.next()
    }

    pub(super) fn install_snapshot(&mut self, snapshot: Snapshot<S>) {
        let (slot, start) = (snapshot.last.slot, self.store.start());
        self.persist(Record::Snapshot(snapshot));
        self.outputs.push(Output::Installed(slot));
        if self.store.start() != start {
            self.apply_configuration();
        }
    }

    /// Steps down as leader or candidate: a decided entry differs from this node's entry in the same slot.
    fn step_down(&mut self) {
        if !matches!(self.role, Role::Follower(_)) {
            self.role = Role::Follower(None);
            self.restart_election_timer();
        }
    }
}

impl<V: Clone + EntrySize, S: Clone> Node<V, S> {
    /// Handles a leader's offer of its snapshot, which replaces entries that the leader has compacted. The caller fetches the
    /// state, and restores the snapshot then; this node acknowledges it with the next heartbeat.
    pub(super) fn handle_install_snapshot(
        &mut self,
        from: NodeId,
        term: Term,
        inherited: Slot,
        snapshot: Snapshot<S>,
    ) {
        if !self.accept_leader(from, term) {
            return;
        }
        let slot = snapshot.last.slot;
        if !Self::is_sound(&snapshot) {
            return;
        }
        if slot > self.store.decided() {
            self.outputs.push(Output::SnapshotOffered(from, snapshot));
        } else {
            self.acknowledge(from, term, slot, inherited);
        }
    }

    /// Compacts the log: replaces the decided entries up to a slot with the state that they produced.
    pub(super) fn compact(&mut self, through: Slot, state: S) {
        let base = self.store.snapshot();
        let Some(last) = self.store.log_id(through).filter(|_| through <= self.store.decided()) else {
            return;
        };
        if through <= base.last.slot {
            return;
        }
        let count = usize::try_from(through.0 - base.last.slot.0).unwrap_or(usize::MAX);
        let entries = self.store.entries_from(base.last.slot.next()).iter().take(count).enumerate();
        let change = |(index, entry): (usize, &Entry<V>)| match &entry.payload {
            EntryPayload::Configuration(configuration) => {
                Some((Slot(base.last.slot.0 + index as u64 + 2), configuration.clone()))
            }
            _ => None,
        };
        let latest = entries.filter_map(change).last();
        let (start, configuration) = latest.unwrap_or((base.start, base.configuration.clone()));
        self.persist(Record::Snapshot(Snapshot { last, start, configuration, state }));
    }
}
