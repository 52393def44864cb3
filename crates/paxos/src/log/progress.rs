//! A leader's view of each follower's progress.
//!
//! | state | `streams` | the leader sends | transition |
//! |---|---|---|---|
//! | probe | `false` | a batch from `next` with each heartbeat; `next` stays | an acknowledgement starts streaming |
//! | replicate | `true` | new entries at once, within the window; `next` advances | a rejection starts probing |
//!
//! There is no separate snapshot state: if the leader has compacted the entry before `next`, it sends its snapshot
//! instead.

use crate::{NodeId, Slot};

/// A leader's view of a follower.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Progress {
    pub(super) node: NodeId,
    /// The follower has the leader's log up to this slot.
    pub(super) matched: Slot,
    /// The next slot to send.
    pub(super) next: Slot,
    /// Whether the leader streams entries before it has acknowledgements for earlier entries (replicate). Otherwise it
    /// probes.
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

    /// Handles a rejection: falls back to probing after `have`. Returns whether the rejection changed anything.
    pub(super) fn behind(&mut self, have: Slot) -> bool {
        let next = have.max(self.matched).next();
        let is_news = self.streams || next != self.next;
        self.next = next;
        self.streams = false;
        is_news
    }

    /// Returns whether this slot is the next slot to stream to the follower, within the window.
    pub(super) fn wants(&self, slot: Slot, window: u64) -> bool {
        self.streams && self.next == slot && self.next.0 - self.matched.0 <= window
    }
}
