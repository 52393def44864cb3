//! How far each follower has come.

use crate::{NodeId, Slot};

/// What a leader knows of one follower.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Progress {
    pub(super) node: NodeId,
    /// It has the leader's log up to here.
    pub(super) matched: Slot,
    /// What it is sent next.
    pub(super) next: Slot,
    /// Whether it takes what it is sent, so that more may be sent before it has said so.
    pub(super) streams: bool,
    pub(super) heard_us: u64,
}

impl Progress {
    pub(super) fn new(node: NodeId, last: Slot, now_us: u64) -> Self {
        Self { node, matched: Slot(0), next: last.next(), streams: false, heard_us: now_us }
    }

    pub(super) fn matched(&mut self, slot: Slot) {
        self.matched = self.matched.max(slot);
        self.next = self.next.max(self.matched.next());
        self.streams = true;
    }

    /// It could not take what was sent. Returns whether that is news.
    pub(super) fn behind(&mut self, have: Slot) -> bool {
        let next = have.max(self.matched).next();
        let is_news = self.streams || next != self.next;
        self.next = next;
        self.streams = false;
        is_news
    }

    /// Whether this slot is what it waits for.
    pub(super) fn wants(&self, slot: Slot, window: u64) -> bool {
        self.streams && self.next == slot && self.next.0 - self.matched.0 <= window
    }
}
