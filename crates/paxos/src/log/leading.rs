//! Leaders: they append entries, count replicas, and step down when they lose their quorum.

use super::node::{Leader, Output, Refusal, Role};
use super::progress::Progress;
use super::{Append, Entry, Message, Node, Payload, Record, Term};
use crate::{MAX_ACCEPTORS, NodeId, Slot, planted};

impl<V: Clone, S: Clone> Node<V, S> {
    /// Appends a proposed value or configuration change, or refuses it.
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

    /// Appends an entry to the log.
    pub(super) fn add(&mut self, term: Term, payload: Payload<V>) -> Slot {
        let slot = self.store.last().next();
        self.keep(Record::Entry { slot, entry: Entry { term, payload } });
        slot
    }

    /// Sends a new entry to every follower that has been sent all entries before it and has room in its window.
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

    /// Handles an acknowledgement: a follower has the leader's log up to a slot.
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

    /// Handles a rejection: a follower lacks the entries before the entries that it was sent.
    pub(super) fn behind(&mut self, from: NodeId, term: Term, have: Slot) {
        let have = have.min(self.store.last());
        if self.follower(from, term).is_some_and(|follower| follower.behind(have)) {
            self.catch_up(from);
        }
    }

    /// Returns the progress of a follower, and notes that the leader has just heard from it.
    pub(super) fn follower(&mut self, node: NodeId, term: Term) -> Option<&mut Progress> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let is_it = |follower: &&mut Progress| follower.node == node;
        let follower = leader.followers.iter_mut().find(is_it).filter(|_| leader.term == term)?;
        follower.heard_us = self.now_us;
        Some(follower)
    }

    /// Decides the entries that a majority has. A follower that lacks a part of the log that the leader began with has
    /// not accepted in this term, and does not count.
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
        // Unused elements are not sorted: only the replicas that count matter.
        let unused = places.len();
        let Some(has) = has.get_mut(..MAX_ACCEPTORS - unused) else { return };
        has.sort_unstable();
        let decided = has.iter().rev().nth(configuration.majority() - 1).copied().unwrap_or_default();
        if decided > self.store.decided() {
            self.decide(decided);
        }
    }

    /// Sends a heartbeat when it is due. A leader that has not heard from a majority for `election_us` steps down
    /// (check quorum), because another node may have replaced it.
    pub(super) fn lead_on(&mut self) {
        let Role::Leader(leader) = &self.role else { return };
        if !self.is_followed(leader) {
            self.role = Role::Follower(None);
            self.wait();
        } else if self.now_us >= leader.beat_us + self.options.heartbeat_us {
            self.beat();
        }
    }

    /// Returns whether the leader has heard from a majority within the last `election_us`.
    pub(super) fn is_followed(&self, leader: &Leader) -> bool {
        let lately = |heard_us: u64| heard_us + self.options.election_us >= self.now_us;
        let followers = leader.followers.iter().filter(|follower| lately(follower.heard_us)).count();
        let configuration = self.store.configuration();
        followers + usize::from(configuration.contains(self.me)) >= configuration.majority()
    }

    /// Sends every follower its next batch of entries, or an empty heartbeat.
    pub(super) fn beat(&mut self) {
        let Role::Leader(leader) = &mut self.role else { return };
        leader.beat_us = self.now_us;
        let nodes: Vec<_> = leader.followers.iter().map(|follower| follower.node).collect();
        for node in nodes {
            self.catch_up(node);
        }
    }

    /// Handles a refusal because of a later term. Only the promise of a voter counts; a refusal by another node is
    /// ignored.
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
