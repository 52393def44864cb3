//! Leaders: they append entries, count replicas, and step down when they lose their quorum.
//!
//! # Early sending
//!
//! The leader writes entries to its own disk in parallel with replicating them (Raft thesis, 10.2.1).
//!
//! An entry is decided when a majority has it on disk, and the leader need not be part of that majority. A leader may
//! therefore send entries that it has not stored, as long as it counts itself only for entries that it has stored. Its
//! term is different: no other node may hear of a term before the leader has stored it, because after a restart the
//! node would not know the term. Therefore the leader sends nothing early before the first [`Output::Stored`] of its
//! term has come back as input. From then on, while it leads in that term, it writes no records except its own entries
//! and snapshots.

use super::node::{Leader, Output, Rejection, Role};
use super::{Append, Entry, EntryPayload, LogId, Message, Node, Record, Term};
use crate::{MAX_ACCEPTORS, NodeId, Slot};

impl<V: Clone, S: Clone> Node<V, S> {
    /// Appends a proposed value or configuration change, or rejects it.
    pub(super) fn propose(&mut self, payload: EntryPayload<V>) {
        let output = match self.check_proposal(&payload) {
            Ok(term) => {
                let slot = self.append_own(term, payload);
                self.stream(slot);
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

    /// Sends a new entry to every follower that has been sent all entries before it and has room in its window.
    fn stream(&mut self, slot: Slot) {
        let Role::Leader(leader) = &mut self.role else { return };
        let before = Slot(slot.0 - 1);
        let (Some(before), Some(entry)) = (self.store.log_id(before), self.store.entry(slot)) else { return };
        for follower in &mut leader.followers {
            if follower.has_room_for(slot, self.options.window) {
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
    pub(super) fn handle_append_accepted(&mut self, from: NodeId, term: Term, slot: Slot) {
        let (last, window) = (self.store.last(), self.options.window);
        let Some(follower) = self.follower(from, term) else { return };
        follower.acknowledge(slot.min(last));
        let more = follower.next <= last && follower.has_room_for(follower.next, window);
        if slot > self.store.decided() {
            self.count_matched();
        }
        if more {
            self.catch_up(from);
        }
    }

    /// Handles a rejection: a follower lacks the entries before the entries that it was sent.
    pub(super) fn handle_append_rejected(&mut self, from: NodeId, term: Term, have: Slot) {
        let have = have.min(self.store.last());
        if self.follower(from, term).is_some_and(|follower| follower.reject(have)) {
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
        let mut elements = has.iter_mut();
        let mine = self.stored_through(leader).filter(|_| configuration.contains(self.me));
        let counts = |matched: &Slot| *matched >= leader.inherited;
        let theirs = leader.followers.iter().map(|follower| follower.matched).filter(counts);
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
        let followers = leader.followers.iter().filter(|follower| lately(follower.heard_us)).count();
        let configuration = self.store.configuration();
        followers + usize::from(configuration.contains(self.me)) >= configuration.majority()
    }

    /// Sends every follower its next batch of entries, or an empty heartbeat.
    pub(super) fn send_heartbeats(&mut self) {
        let Role::Leader(leader) = &mut self.role else { return };
        leader.heartbeat_sent_us = self.now_us;
        let nodes: Vec<_> = leader.followers.iter().map(|follower| follower.node).collect();
        for node in nodes {
            self.catch_up(node);
        }
    }

    /// Sends the next batch of missing entries to a follower, or an empty heartbeat if it is up to date. If the leader
    /// has compacted the missing entries, it sends its snapshot.
    pub(super) fn catch_up(&mut self, node: NodeId) {
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(follower) = leader.followers.iter_mut().find(|follower| follower.node == node) else {
            return;
        };
        let (term, inherited) = (leader.term, leader.inherited);
        let Some(before) = self.store.log_id(Slot(follower.next.0.saturating_sub(1))) else {
            let snapshot = self.store.snapshot().clone();
            self.outputs.push(Output::Send(node, Message::InstallSnapshot { term, inherited, snapshot }));
            return;
        };
        let mut entries = self.store.entries_from(follower.next).iter().take(self.options.batch).cloned();
        let entry = entries.next();
        let more: Vec<_> = entries.collect();
        if follower.is_streaming {
            follower.next.0 += more.len() as u64 + u64::from(entry.is_some());
        }
        let decided = self.store.decided();
        let append = Append { term, before, entry, more, inherited, decided };
        self.outputs.push(Output::Send(node, Message::Append(append)));
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

/// A leader's view of a follower's progress.
///
/// | state | `is_streaming` | the leader sends | transition |
/// |---|---|---|---|
/// | probe | `false` | a batch from `next` with each heartbeat; `next` stays | an acknowledgement starts streaming |
/// | replicate | `true` | new entries at once, within the window; `next` advances | a rejection starts probing |
///
/// There is no separate snapshot state: if the leader has compacted the entry before `next`, it sends its snapshot
/// instead.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Progress {
    pub(super) node: NodeId,
    /// The follower has the leader's log up to this slot.
    pub(super) matched: Slot,
    /// The next slot to send.
    pub(super) next: Slot,
    /// Whether the leader streams entries before it has acknowledgements for earlier entries (replicate). Otherwise it
    /// probes.
    pub(super) is_streaming: bool,
    pub(super) heard_us: u64,
}

impl Progress {
    pub(super) fn new(node: NodeId, last: Slot, now_us: u64) -> Self {
        Self { node, matched: Slot(0), next: last.next(), is_streaming: false, heard_us: now_us }
    }

    pub(super) fn acknowledge(&mut self, slot: Slot) {
        self.matched = self.matched.max(slot);
        self.next = self.next.max(self.matched.next());
        self.is_streaming = true;
    }

    /// Handles a rejection: falls back to probing after `have`. Returns whether the rejection changed anything.
    pub(super) fn reject(&mut self, have: Slot) -> bool {
        let next = have.max(self.matched).next();
        let is_news = self.is_streaming || next != self.next;
        self.next = next;
        self.is_streaming = false;
        is_news
    }

    /// Returns whether this slot is the next slot to stream to the follower, within the window.
    pub(super) fn has_room_for(&self, slot: Slot, window: u64) -> bool {
        self.is_streaming && self.next == slot && self.next.0 - self.matched.0 <= window
    }
}

impl<V: Clone, S: Clone> Node<V, S> {
    /// Returns the messages that may leave before this step is stored, and requests an [`Output::Stored`] notification.
    pub(super) fn take_early_outputs(&mut self) -> Vec<Output<V, S>> {
        let Role::Leader(Leader { term, stored, .. }) = &self.role else { return Vec::new() };
        if !self.options.early {
            return Vec::new();
        }
        if !self.records.is_empty() {
            self.outputs.push(Output::Stored { term: *term, slot: self.store.last() });
        }
        if stored.is_none() {
            return Vec::new();
        }
        let is_append = |output: &mut Output<V, S>| matches!(output, Output::Send(_, Message::Append(_)));
        self.outputs.extract_if(.., is_append).collect()
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
