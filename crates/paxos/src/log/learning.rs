//! Learning decided entries from a proof, independent of the leader.
//!
//! The node stores such entries like a leader's, with one difference: it does not accept them in any term, so that no
//! leader counts them. The entries that they overwrite were undecided, and can no longer be decided.

use super::node::{Output, Role};
use super::{Entry, Mark, Node, Record, Snapshot};
use crate::Slot;

/// The highest slot that a snapshot may claim. No log becomes that long: the node ignores snapshots beyond it.
const FURTHEST: Slot = Slot(1 << 62);

impl<V: Clone, S: Clone> Node<V, S> {
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
            let mark = Mark { slot, term: entry.term };
            if slot > decided && self.store.mark(slot) != Some(mark) {
                self.give_up();
                self.take(slot, entry);
            }
        }
        self.decide(slot);
        if self.store.decided() > decided {
            // A node that does not vote may never hear of this decision from a leader: store it.
            self.keep(Record::Decided(self.store.decided()));
        }
    }

    /// Installs a snapshot that is proven to cover decided slots. A snapshot of the same slots replaces the current
    /// snapshot.
    pub(super) fn rest(&mut self, snapshot: Snapshot<S>) {
        if snapshot.last == self.store.snapshot().last {
            self.keep(Record::Snapshot(snapshot));
        } else if Self::is_sound(&snapshot) && snapshot.last.slot > self.store.decided() {
            if self.store.mark(snapshot.last.slot) != Some(snapshot.last) {
                self.give_up();
            }
            self.rest_on(snapshot);
        }
    }

    pub(super) fn is_sound(snapshot: &Snapshot<S>) -> bool {
        let slot = snapshot.last.slot;
        slot <= FURTHEST && snapshot.start <= slot.next()
    }

    pub(super) fn rest_on(&mut self, snapshot: Snapshot<S>) {
        let (slot, start) = (snapshot.last.slot, self.store.start());
        self.keep(Record::Snapshot(snapshot));
        self.outputs.push(Output::Installed(slot));
        if self.store.start() != start {
            self.hand_over();
        }
    }

    /// Steps down as leader or candidate: a decided entry differs from this node's entry in the same slot.
    fn give_up(&mut self) {
        if !matches!(self.role, Role::Follower(_)) {
            self.role = Role::Follower(None);
            self.wait();
        }
    }
}
