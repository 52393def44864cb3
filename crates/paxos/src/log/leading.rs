//! A leader: appends, counts who has what, and goes when it is alone.

use super::node::{Leader, Output, Refusal, Role};
use super::progress::Progress;
use super::{Append, Entry, Message, Node, Payload, Record, Term};
use crate::{MAX_ACCEPTORS, NodeId, Slot, planted};

impl<V: Clone, S: Clone> Node<V, S> {
    /// Somebody wants something decided.
    pub(super) fn propose(&mut self, payload: Payload<V>) {
        let output = match self.may_propose(&payload) {
            Ok(term) => {
                let slot = self.add(term, payload);
                self.stream(slot);
                Output::Proposed(slot, term)
            }
            Err(refusal) => Output::NotTaken(refusal),
        };
        self.outputs.push(output);
        if self.store.configuration().majority() == 1 {
            self.count_matched();
        }
    }

    fn may_propose(&self, payload: &Payload<V>) -> Result<Term, Refusal> {
        let Role::Leader(leader) = &self.role else { return Err(Refusal::NotLeading(self.leader())) };
        if self.handing.is_some() {
            return Err(Refusal::HandingOver);
        }
        if self.store.is_changing() {
            return Err(Refusal::Changing);
        }
        if !self.is_ready() {
            return Err(Refusal::NotReady);
        }
        if self.store.last().0 - self.store.decided().0 >= self.options.undecided {
            return Err(Refusal::Full);
        }
        if matches!(payload, Payload::Configuration(to) if !self.store.configuration().is_beside(to)) {
            return Err(Refusal::TooFar);
        }
        Ok(leader.term)
    }

    /// Puts an entry on top of the log.
    pub(super) fn add(&mut self, term: Term, payload: Payload<V>) -> Slot {
        let slot = self.store.last().next();
        self.keep(Record::Entry { slot, entry: Entry { term, payload } });
        slot
    }

    /// Sends a new entry to those who have all before it.
    fn stream(&mut self, slot: Slot) {
        let Role::Leader(leader) = &mut self.role else { return };
        let before = Slot(slot.0 - 1);
        let (Some(before), Some(entry)) = (self.store.mark(before), self.store.entry(slot)) else { return };
        for follower in &mut leader.followers {
            if follower.wants(slot, self.options.window) {
                follower.next = slot.next();
                let append = Append {
                    term: leader.term,
                    before,
                    entry: Some(entry.clone()),
                    more: Vec::new(),
                    inherited: leader.inherited,
                    decided: self.store.decided(),
                };
                self.outputs.push(Output::Send(follower.node, Message::Append(append)));
            }
        }
    }

    /// A follower has the log up to a slot.
    pub(super) fn matched(&mut self, from: NodeId, term: Term, slot: Slot) {
        let (last, window) = (self.store.last(), self.options.window);
        let Some(follower) = self.follower(from, term) else { return };
        follower.matched(slot.min(last));
        let more = follower.next <= last && follower.wants(follower.next, window);
        if slot > self.store.decided() {
            self.count_matched();
        }
        if more {
            self.catch_up(from);
        }
    }

    /// A follower misses what comes before what it was sent.
    pub(super) fn behind(&mut self, from: NodeId, term: Term, have: Slot) {
        let have = have.min(self.store.last());
        if self.follower(from, term).is_some_and(|follower| follower.behind(have)) {
            self.catch_up(from);
        }
    }

    /// One of its followers, that has just been heard of.
    pub(super) fn follower(&mut self, node: NodeId, term: Term) -> Option<&mut Progress> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let is_it = |follower: &&mut Progress| follower.node == node;
        let follower = leader.followers.iter_mut().find(is_it).filter(|_| leader.term == term)?;
        follower.heard_us = self.now_us;
        Some(follower)
    }

    /// Decides what a majority has. Whoever has not all that the leader began with has accepted none of it in this
    /// term, and does not count.
    pub(super) fn count_matched(&mut self) {
        let Role::Leader(leader) = &self.role else { return };
        let configuration = self.store.configuration();
        let mut has = [Slot(0); MAX_ACCEPTORS];
        let mut places = has.iter_mut();
        let mine = self.has_stored(leader).filter(|_| configuration.contains(self.me));
        let counts = |matched: &Slot| *matched >= leader.inherited || planted!(CommitInherited);
        let theirs = leader.followers.iter().map(|follower| follower.matched).filter(counts);
        for (has, place) in mine.into_iter().chain(theirs).zip(&mut places) {
            *place = has;
        }
        // The rest is 0: the order of the highest ones is all that matters.
        let unused = places.len();
        let Some(has) = has.get_mut(..MAX_ACCEPTORS - unused) else { return };
        has.sort_unstable();
        let decided = has.iter().rev().nth(configuration.majority() - 1).copied().unwrap_or_default();
        if decided > self.store.decided() {
            self.decide(decided);
        }
    }

    /// Shows that it lives, or goes: a leader that a majority does not hear may have been replaced.
    pub(super) fn lead_on(&mut self) {
        let Role::Leader(leader) = &self.role else { return };
        if !self.is_followed(leader) {
            self.role = Role::Follower(None);
            self.wait();
        } else if self.now_us >= leader.beat_us + self.options.heartbeat_us {
            self.beat();
        }
    }

    /// Whether a majority was heard of lately.
    pub(super) fn is_followed(&self, leader: &Leader) -> bool {
        let lately = |heard_us: u64| heard_us + self.options.election_us >= self.now_us;
        let followers = leader.followers.iter().filter(|follower| lately(follower.heard_us)).count();
        let configuration = self.store.configuration();
        followers + usize::from(configuration.contains(self.me)) >= configuration.majority()
    }

    /// Says to everybody that it leads, and what comes next.
    pub(super) fn beat(&mut self) {
        let Role::Leader(leader) = &mut self.role else { return };
        leader.beat_us = self.now_us;
        let nodes: Vec<_> = leader.followers.iter().map(|follower| follower.node).collect();
        for node in nodes {
            self.catch_up(node);
        }
    }

    /// A later term stands in the way, says one who votes: nobody else's promise does.
    pub(super) fn refused(&mut self, from: NodeId, term: Term, promised: Term) {
        if !self.store.configuration().contains(from) {
            return;
        }
        let of = match &self.role {
            Role::Leader(leader) => leader.term,
            Role::Candidate { term, .. } => *term,
            Role::Follower(_) => return,
        };
        if term == of && promised > of {
            self.note(promised);
            self.role = Role::Follower(None);
            self.wait();
        }
    }
}
