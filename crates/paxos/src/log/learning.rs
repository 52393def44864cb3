//! What is decided, from somebody who does not lead but has proven it.
//!
//! It is taken like a leader's, but for what only a leader can say: nothing is accepted by it, so nobody counts it. What it
//! puts others in the place of was undecided, and cannot be decided any more.

use super::node::{Output, Role};
use super::{Entry, Mark, Node, Record, Snapshot};
use crate::Slot;

/// No log comes so far: whoever says so is not to be believed.
const FURTHEST: Slot = Slot(1 << 62);

impl<V: Clone, S: Clone> Node<V, S> {
    /// These entries are decided. They go on from what is known to be, or are passed over.
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
            // No leader may ever say so again to one who does not vote.
            self.keep(Record::Decided(self.store.decided()));
        }
    }

    /// This stands for decided slots.
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

    /// Others have decided something else than what stands here: whoever leads, or asks to, does so no longer.
    fn give_up(&mut self) {
        if !matches!(self.role, Role::Follower(_)) {
            self.role = Role::Follower(None);
            self.wait();
        }
    }
}
