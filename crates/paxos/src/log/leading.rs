//! Leaders: they append entries, count replicas, and step down when they lose their quorum.
//!
//! # Early sending
//!
//! The leader writes entries to its own disk in parallel with replicating them (Raft thesis, 10.2.1).
//!
//! An entry is decided when a majority has it on disk, and the leader need not be part of that majority. A leader may
//! therefore send entries that it has not stored, as long as it counts itself only for entries that it has stored. Its
//! term is different: no other node may hear of a term before the leader has stored it, because after a restart the
//! node would not know the term. Therefore the leader sends nothing early before the first [`Input::Stored`] of its
//! term. From then on, while it leads in that term, it writes no records except its own entries
//! and snapshots.

use holdoff_driver::StepOf;

use super::node::{Input, Leader, Output, Rejection, Role};
use super::progress::{NextSend, Occasion, Progress};
use super::{Append, Entry, EntryPayload, EntrySize, LogId, Message, Node, Record, Term};
use crate::{MAX_ACCEPTORS, NodeId, Slot};

impl<V: Clone + EntrySize, S: Clone> Node<V, S> {
    /// Appends a proposed value or configuration change, or rejects it.
    pub(super) fn propose(&mut self, payload: EntryPayload<V>) {
        let output = match self.check_proposal(&payload) {
            Ok(term) => {
                let slot = self.append_own(term, payload);
                self.send_to_all(Occasion::NewEntry);
                Output::Proposed(slot, term)
            }
            Err(rejection) => Output::ProposalRejected(rejection),
        };
        self.outputs.push(output);
        if self.store.configuration().majority() == 1 {
            self.count_matched();
        }
    }

    fn check_proposal(&self, payload: &EntryPayload<V>) -> Result<Term, Rejection> {
        let Role::Leader(leader) = &self.role else { return Err(Rejection::NotLeading(self.leader())) };
        if self.transfer.is_some() {
            return Err(Rejection::Transferring);
        }
        if self.store.is_changing() {
            return Err(Rejection::Changing);
        }
        if !self.is_ready() {
            return Err(Rejection::NotReady);
        }
        if self.store.last().0 - self.store.decided().0 >= self.options.undecided {
            return Err(Rejection::Full);
        }
        if matches!(payload, EntryPayload::Configuration(to) if !self.store.configuration().is_single_change_from(to))
        {
            return Err(Rejection::MoreThanOneVoter);
        }
        Ok(leader.term)
    }

    /// Appends an entry to the log.
    pub(super) fn append_own(&mut self, term: Term, payload: EntryPayload<V>) -> Slot {
        let slot = self.store.last().next();
        self.persist(Record::Entry { slot, entry: Entry { term, payload } });
        slot
    }

    /// Handles an acknowledgement: a follower has the leader's log up to a slot.
    pub(super) fn handle_append_accepted(&mut self, from: NodeId, term: Term, slot: Slot) {
        let last = self.store.last();
        let Some((index, follower)) = self.follower(from, term) else { return };
        follower.acknowledge(slot.min(last));
        if slot > self.store.decided() {
            self.count_matched();
        }
        self.send_next(index, Occasion::Reply);
    }

    /// Handles a rejection: a follower lacks the entries before the entries that it was sent.
    pub(super) fn handle_append_rejected(&mut self, from: NodeId, term: Term, have: Slot) {
        let have = have.min(self.store.last());
        if let Some((index, follower)) = self.follower(from, term)
            && follower.reject(have)
        {
            self.send_next(index, Occasion::Reply);
        }
    }

    /// Returns the progress of a follower, and notes that the leader has just heard from it.
    fn follower(&mut self, node: NodeId, term: Term) -> Option<(usize, &mut Progress)> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let index = leader.followers.iter().position(|follower| follower.node() == node)?;
        let follower = leader.followers.get_mut(index).filter(|_| leader.term == term)?;
        follower.hear(self.now_us);
        Some((index, follower))
    }

    /// Decides the entries that a majority has. A follower that lacks a part of the log that the leader began with has
    /// not accepted in this term, and does not count.
    pub(super) fn count_matched(&mut self) {
        let Role::Leader(leader) = &self.role else { return };
        let configuration = self.store.configuration();
        let mut has = [Slot(0); MAX_ACCEPTORS];
        let mut elements = has.iter_mut();
        let mine = self.stored_through(leader).filter(|_| configuration.contains(self.me));
        let counts = |matched: &Slot| *matched >= leader.inherited;
        let theirs = leader.followers.iter().map(Progress::matched).filter(counts);
        for (has, element) in mine.into_iter().chain(theirs).zip(&mut elements) {
            *element = has;
        }
        // Unused elements are not sorted: only the replicas that count matter.
        let unused = elements.len();
        let Some(has) = has.get_mut(..MAX_ACCEPTORS - unused) else { return };
        has.sort_unstable();
        let decided = has.iter().rev().nth(configuration.majority() - 1).copied().unwrap_or_default();
        if decided > self.store.decided() {
            self.decide(decided);
        }
    }

    /// Sends a heartbeat when it is due. A leader that has not heard from a majority for `election_us` steps down
    /// (check quorum), because another node may have replaced it.
    pub(super) fn tick_leader(&mut self) {
        let Role::Leader(leader) = &self.role else { return };
        if !self.has_quorum(leader) {
            self.role = Role::Follower(None);
            self.restart_election_timer();
        } else if self.now_us >= leader.heartbeat_sent_us + self.options.heartbeat_us {
            self.send_heartbeats();
        }
    }

    /// Returns whether the leader has heard from a majority within the last `election_us`.
    pub(super) fn has_quorum(&self, leader: &Leader) -> bool {
        let lately = |heard_us: u64| heard_us + self.options.election_us >= self.now_us;
        let followers = leader.followers.iter().filter(|follower| lately(follower.heard_us())).count();
        let configuration = self.store.configuration();
        followers + usize::from(configuration.contains(self.me)) >= configuration.majority()
    }

    /// Sends every follower a heartbeat: with its next entries, if it answers and has room for them.
    pub(super) fn send_heartbeats(&mut self) {
        let Role::Leader(leader) = &mut self.role else { return };
        leader.heartbeat_sent_us = self.now_us;
        self.send_to_all(Occasion::Heartbeat);
    }

    pub(super) fn send_to_all(&mut self, occasion: Occasion) {
        let Role::Leader(leader) = &self.role else { return };
        for index in 0..leader.followers.len() {
            self.send_next(index, occasion);
        }
    }

    /// Sends to a follower what its progress requires.
    fn send_next(&mut self, index: usize, occasion: Occasion) {
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(follower) = leader.followers.get_mut(index) else { return };
        let (term, inherited) = (leader.term, leader.inherited);
        let message = match follower.next_send(occasion, self.store.range(), &self.options, self.now_us) {
            None => return,
            Some(NextSend::Snapshot) => {
                Message::InstallSnapshot { term, inherited, snapshot: self.store.snapshot().clone() }
            }
            Some(NextSend::Entries { from, count }) => {
                let Some(before) = self.store.log_id(Slot(from.0.saturating_sub(1))) else { return };
                let mut entries = self.store.entries_from(from).iter().take(count).cloned();
                let (entry, decided) = (entries.next(), self.store.decided());
                let more = entries.collect();
                Message::Append(Box::new(Append { term, before, entry, more, inherited, decided }))
            }
        };
        self.outputs.push(Output::Send(follower.node(), message));
    }

    /// Handles a refusal because of a later term. Only the promise of a voter counts; a refusal by another node is
    /// ignored.
    pub(super) fn handle_stale_term(
        &mut self,
        from: NodeId,
        term: Term,
        promised: Term,
        decided_change: Option<LogId>,
    ) {
        if !self.store.configuration().contains(from) {
            return;
        }
        self.learn_decided_change(from, decided_change);
        let of = match &self.role {
            Role::Leader(leader) => leader.term,
            Role::Candidate { term, .. } => *term,
            Role::Follower(_) => return,
        };
        if term == of && promised > of {
            self.note_attempt(promised);
            self.role = Role::Follower(None);
            self.restart_election_timer();
        }
    }
}

impl<V: Clone + EntrySize, S: Clone> Node<V, S> {
    /// Moves the messages that may leave before this step is stored, and requests an [`Input::Stored`].
    pub(super) fn send_early(&mut self, step: &mut StepOf<Self>) {
        let Role::Leader(Leader { term, stored, .. }) = &self.role else { return };
        if !self.options.early {
            return;
        }
        if !self.records.is_empty() {
            step.return_when_stored(Input::Stored { term: *term, slot: self.store.last() });
        }
        if stored.is_some() {
            let is_append = |output: &mut Output<V, S>| matches!(output, Output::Send(_, Message::Append(_)));
            self.outputs.extract_if(.., is_append).for_each(|output| step.at_once(output));
        }
    }

    /// Notes that the log of this term is on disk up to a slot. The leader counts itself up to that slot.
    pub(super) fn stored(&mut self, term: Term, slot: Slot) {
        let last = self.store.last();
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.term == term {
            leader.stored = leader.stored.max(Some(slot.min(last)));
            self.count_matched();
        }
    }

    /// Returns the last slot that the leader counts itself for. Without early sending it is the last slot of the log:
    /// no message that depends on an unstored entry leaves before that entry is stored.
    pub(super) fn stored_through(&self, leader: &Leader) -> Option<Slot> {
        if self.options.early { leader.stored } else { Some(self.store.last()) }
    }
}
