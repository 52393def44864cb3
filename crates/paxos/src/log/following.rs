//! A follower: takes what a leader sends, each entry on top of the one it belongs on.

use super::node::Role;
use super::{Append, Entry, Mark, Message, Node, Record, Term};
use crate::{NodeId, Slot, planted};

impl<V: Clone, S: Clone> Node<V, S> {
    /// A leader sends what comes next.
    pub(super) fn follow(&mut self, from: NodeId, append: Append<V>) {
        let Append { term, before, entry, more, inherited, decided } = append;
        if !self.heed(from, term) {
            return;
        }
        if let Err(have) = self.fits(before, entry.iter().chain(&more)) {
            self.send(from, Message::Behind { term, have });
            return;
        }
        let mut slot = before.slot;
        for entry in entry.into_iter().chain(more) {
            slot = slot.next();
            let is_there = self.store.mark(slot).is_some_and(|mark| mark.term == entry.term);
            if slot > self.store.decided() && !is_there {
                self.take(slot, entry);
            }
        }
        if slot.next() >= term.start() {
            self.decide_before(term);
        }
        self.accept(from, term, slot, inherited);
        self.decide(decided.min(slot));
    }

    /// Whether this is the leader to follow: of no earlier term than what was promised.
    pub(super) fn heed(&mut self, from: NodeId, term: Term) -> bool {
        let promised = self.store.promised_under(term.start());
        let can_promise = self.store.promises().have_room_for(term);
        if term < promised || term.leader() != from || !can_promise {
            self.send(from, Message::Refused { term, promised });
            return false;
        }
        if term > promised {
            self.promise(term);
        }
        self.role = Role::Follower(Some(from));
        self.heard_us = Some(self.now_us);
        self.wait();
        true
    }

    /// Keeps an entry on top of those that it belongs on.
    pub(super) fn take(&mut self, slot: Slot, entry: Entry<V>) {
        self.decide_before(entry.term);
        self.keep(Record::Entry { slot, entry });
    }

    /// Whoever writes in a term knows that all before its start is decided: so does whoever has that, before it has more.
    fn decide_before(&mut self, term: Term) {
        if term.start() > self.store.start() {
            self.decide(Slot(term.start().0.saturating_sub(1)));
        }
    }

    /// Whether the log has this entry, and so all before it; else from where on to send.
    fn fits<'a>(&self, before: Mark, mut entries: impl Iterator<Item = &'a Entry<V>>) -> Result<(), Slot>
    where
        V: 'a,
    {
        let (last, decided) = (self.store.last(), self.store.decided());
        if let Some(skipped) = decided.0.checked_sub(before.slot.next().0) {
            // Others may have proven what this leader, whose time is over, has otherwise: it must show that it has the same.
            let theirs = usize::try_from(skipped).ok().and_then(|skipped| entries.nth(skipped));
            let is_same =
                |theirs: &Entry<V>| self.store.mark(decided).is_some_and(|mark| mark.term == theirs.term);
            return if theirs.is_some_and(is_same) { Ok(()) } else { Err(decided) };
        }
        let Some(there) = self.store.mark(before.slot) else { return Err(last) };
        if there == before || planted!(TakeWithoutMatch) {
            return Ok(());
        }
        // All that this author wrote may be wrong: go back before it at once.
        let mut have = before.slot;
        while have > decided && self.store.mark(have).is_some_and(|mark| mark.term == there.term) {
            have = Slot(have.0 - 1);
        }
        Err(have)
    }

    /// The log is the leader's up to a slot. If that is all the leader began with, it is accepted in its term, and
    /// what comes after it is not the leader's.
    pub(super) fn accept(&mut self, from: NodeId, term: Term, slot: Slot, inherited: Slot) {
        if slot >= inherited && self.store.accepted() < term {
            let last = slot.max(self.store.decided());
            self.keep(Record::Accepted { term, last });
        }
        self.send(from, Message::Matched { term, slot });
    }
}
