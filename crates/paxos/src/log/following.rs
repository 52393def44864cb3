//! Followers: they append the leader's entries, each after the entry that precedes it in the leader's log.

use super::node::Role;
use super::{Append, Entry, EntrySize, LogId, Message, Node, Record, Term};
use crate::{NodeId, Slot};

impl<V: Clone + EntrySize, S: Clone> Node<V, S> {
    /// Handles a leader's append request or heartbeat.
    pub(super) fn handle_append(&mut self, from: NodeId, append: Append<V>) {
        let Append { term, before, entry, more, inherited, decided } = append;
        if !self.accept_leader(from, term) {
            return;
        }
        if let Err(have) = self.check_log_matching(before, entry.iter().chain(&more)) {
            self.send(from, Message::AppendRejected { term, have });
            return;
        }
        let mut slot = before.slot;
        for entry in entry.into_iter().chain(more) {
            slot = slot.next();
            let is_there = self.store.log_id(slot).is_some_and(|id| id.term == entry.term);
            if slot > self.store.decided() && !is_there {
                self.append(slot, entry);
            }
        }
        if slot.next() >= term.start() {
            self.decide_before(term);
        }
        self.acknowledge(from, term, slot, inherited);
        self.decide(decided.min(slot));
    }

    /// Returns whether to follow the sender: its term must not be earlier than the promised term. If so, promises that
    /// term and restarts the election timeout; else sends a refusal.
    pub(super) fn accept_leader(&mut self, from: NodeId, term: Term) -> bool {
        let promised = self.store.promised_under(term.start());
        let can_promise = self.store.promises().has_room_for(term);
        if term < promised || term.leader() != from || !can_promise {
            let decided_change = self.store.change_after(term.start());
            self.send(from, Message::StaleTerm { term, promised, decided_change });
            return false;
        }
        if term > promised {
            self.promise(term);
        }
        self.role = Role::Follower(Some(from));
        self.heard_us = Some(self.now_us);
        self.restart_election_timer();
        true
    }

    /// Stores an entry. Its predecessor is already in the log.
    pub(super) fn append(&mut self, slot: Slot, entry: Entry<V>) {
        self.decide_before(entry.term);
        self.persist(Record::Entry { slot, entry });
    }

    /// Decides all slots before the start of a term. The leader of a term knows that these slots are decided. A node
    /// that receives an entry of that term stores this knowledge before it stores the entry.
    fn decide_before(&mut self, term: Term) {
        if term.start() > self.store.start() {
            self.decide(Slot(term.start().0.saturating_sub(1)));
        }
    }

    /// Returns whether the log contains the entry `before`, and thus all entries before it (log matching). Otherwise
    /// returns the slot after which the leader continues.
    fn check_log_matching<'a>(
        &self,
        before: LogId,
        mut entries: impl Iterator<Item = &'a Entry<V>>,
    ) -> Result<(), Slot>
    where
        V: 'a,
    {
        let (last, decided) = (self.store.last(), self.store.decided());
        if let Some(skipped) = decided.0.checked_sub(before.slot.next().0) {
            // This node may have learned decided entries from a proof, while a stale leader has other entries in these
            // slots. The leader must therefore show that it has the same entry at the last decided slot.
            let theirs = usize::try_from(skipped).ok().and_then(|skipped| entries.nth(skipped));
            let is_same =
                |theirs: &Entry<V>| self.store.log_id(decided).is_some_and(|id| id.term == theirs.term);
            return if theirs.is_some_and(is_same) { Ok(()) } else { Err(decided) };
        }
        let Some(there) = self.store.log_id(before.slot) else { return Err(last) };
        if there == before {
            return Ok(());
        }
        // All entries of this term may conflict: skip the whole term at once.
        let mut have = before.slot;
        while have > decided && self.store.log_id(have).is_some_and(|id| id.term == there.term) {
            have = Slot(have.0 - 1);
        }
        Err(have)
    }

    /// Acknowledges that the log equals the leader's up to a slot. If that covers the whole log that the leader began
    /// with, stores that the log is accepted in the leader's term, and drops the entries after that slot.
    pub(super) fn acknowledge(&mut self, from: NodeId, term: Term, slot: Slot, inherited: Slot) {
        if slot >= inherited && self.store.accepted() < term {
            let last = slot.max(self.store.decided());
            self.persist(Record::Accepted { term, last });
        }
        self.send(from, Message::AppendAccepted { term, slot });
    }
}
