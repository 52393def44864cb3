//! Reads, and their freshness.

use std::collections::BTreeMap;

use holdoff_paxos::log::{self, Term};
use holdoff_paxos::{NodeId, Tally};

use super::{Consistency, Ledger, LogMessage, Message, Output, ReadId};
use crate::certificate::Notary;
use crate::entry::ReplicatedMachine;

/// The waiting reads, and the round of confirmations that must complete before the leader answers them.
pub(super) struct Reads<G> {
    waiting: BTreeMap<ReadId, WaitingRead<G>>,
    round: Option<Round>,
    number: u64,
    /// The term of the leader lease, and the time until which this node may serve reads without a confirmation.
    lease: Option<(Term, u64)>,
}

struct WaitingRead<G> {
    goal: G,
    /// The first round that starts after the read arrived.
    round: u64,
    until_us: u64,
}

#[derive(Clone, Copy)]
struct Round {
    term: Term,
    number: u64,
    sent_us: u64,
    confirmed_by: Tally,
}

impl<G> Default for Reads<G> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), round: None, number: 0, lease: None }
    }
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Answers a read, lets it wait for a round, or rejects it.
    pub(super) fn read(&mut self, read: ReadId, goal: M::Goal, consistency: Consistency) {
        self.lead();
        let term = self.leader_state.as_ref().map(|leader_state| leader_state.term);
        let is_full = self.reads.waiting.len() >= self.options.pending;
        let leased = |(of, until_us)| Some(of) == term && self.now_us < until_us;
        match consistency {
            Consistency::Local => self.answer(read, &goal),
            Consistency::Lease if self.reads.lease.is_some_and(leased) => self.answer(read, &goal),
            _ if term.is_none() || is_full => {
                let leader = self.log.leader().filter(|leader| *leader != self.me);
                self.step.at_once(Output::NotAnswered(read, leader));
            }
            Consistency::Quorum | Consistency::Lease => {
                let until_us = self.now_us + self.options.result_us;
                let round = self.reads.number + 1;
                self.reads.waiting.insert(read, WaitingRead { goal, round, until_us });
                if self.reads.round.is_none() {
                    self.start_round();
                }
            }
        }
    }

    fn answer(&mut self, read: ReadId, goal: &M::Goal) {
        let result = self.state.machine.execute(&M::Overlay::default(), goal).map(|(_, answer)| answer);
        let index = self.state.index;
        self.answer_caller(Output::Answered { read, index, result });
    }

    /// Starts a round: asks all voters whether the term is still current.
    fn start_round(&mut self) {
        let Some(term) = self.leader_state.as_ref().map(|leader_state| leader_state.term) else { return };
        self.reads.number += 1;
        let number = self.reads.number;
        let voters = self.log.store().configuration().clone();
        let mut confirmed_by = Tally::default();
        confirmed_by.count(self.me, &voters);
        self.reads.round = Some(Round { term, number, sent_us: self.now_us, confirmed_by });
        for voter in confirmed_by.missing(&voters) {
            self.send_at_once(voter, Message::ConfirmTerm(term, number));
        }
        self.count_round();
    }

    /// Starts another round if reads are waiting. Rejects the reads whose timeout has expired, and all waiting reads
    /// if this node no longer leads.
    pub(super) fn continue_round(&mut self) {
        let leads = self.leader_state.is_some();
        let late = |waiting: &WaitingRead<M::Goal>| !leads || waiting.until_us <= self.now_us;
        let ids = self.reads.waiting.iter().filter(|(_, waiting)| late(waiting)).map(|(read, _)| *read);
        let leader = self.log.leader().filter(|leader| *leader != self.me);
        for read in ids.collect::<Vec<_>>() {
            self.reads.waiting.remove(&read);
            self.step.at_once(Output::NotAnswered(read, leader));
        }
        let is_late = |round: &Round| round.sent_us + self.options.log.heartbeat_us <= self.now_us;
        if leads && self.reads.round.as_ref().is_none_or(is_late) {
            self.start_round();
        }
    }

    /// Confirms to the leader that its term is current. For the length of a lease this node then supports no other
    /// candidate.
    pub(super) fn confirm_term(&mut self, from: NodeId, term: Term, round: u64) {
        if self.log.store().promised() == term && term.leader() == from {
            self.lease_granted_until_us =
                self.lease_granted_until_us.max(self.now_us + self.options.lease_us);
            self.confirmed_term = Some(term);
            self.send(from, Message::TermConfirmed(term, round));
        }
    }

    /// Returns true if the message releases this voter from the term that it has confirmed. The leader of that term
    /// sends it: either it transfers leadership in exactly that term, or it requests votes in a later term and has
    /// itself promised to accept nothing of an earlier term. In both cases its lease has ended.
    pub(super) fn is_released_by(&self, from: NodeId, message: &LogMessage<M>) -> bool {
        let Some(confirmed_term) =
            self.confirmed_term.filter(|confirmed_term| confirmed_term.leader() == from)
        else {
            return false;
        };
        match message {
            log::Message::TimeoutNow { term, .. } => *term == confirmed_term,
            log::Message::RequestVote(asked) => {
                !asked.is_pre_vote && asked.term.leader() == from && asked.term > confirmed_term
            }
            _ => false,
        }
    }

    /// Returns true if this node passes the message to its log. While it has confirmed a term it takes part in no
    /// election. The exception is a pre-vote of the leader of that term, because the configuration may have changed.
    pub(super) fn may_pass_to_log(&self, from: NodeId, message: &LogMessage<M>) -> bool {
        let is_free = self.now_us >= self.lease_granted_until_us;
        match message {
            log::Message::RequestVote(asked) if asked.is_pre_vote => {
                is_free || self.confirmed_term.is_some_and(|term| term.leader() == from)
            }
            log::Message::RequestVote(_)
            | log::Message::VoteReply { .. }
            | log::Message::TimeoutNow { .. } => is_free,
            _ => true,
        }
    }

    /// Ends the leader lease. In the same step this node tells other nodes that they need not wait for it.
    pub(super) fn drop_lease(&mut self) {
        (self.reads.lease, self.reads.round, self.leader_state) = (None, None, None);
    }

    pub(super) fn handle_term_confirmed(&mut self, from: NodeId, term: Term, number: u64) {
        let voters = self.log.store().configuration();
        if let Some(round) = self.reads.round.as_mut().filter(|it| (it.term, it.number) == (term, number)) {
            round.confirmed_by.count(from, voters);
            self.count_round();
        }
    }

    /// Answers the reads that arrived before the round, if a majority has confirmed the term.
    fn count_round(&mut self) {
        let Some(Round { term, number, sent_us, confirmed_by }) = self.reads.round else { return };
        let leads = self.leader_state.as_ref().is_some_and(|leader_state| leader_state.term == term);
        if !leads
            || self.log.leads() != Some(term)
            || !confirmed_by.is_quorum(self.log.store().configuration())
        {
            return;
        }
        self.reads.round = None;
        let drift_us = self.options.lease_us * self.options.drift_ppm / 1_000_000;
        self.reads.lease = Some((term, sent_us + self.options.lease_us.saturating_sub(drift_us)));
        let ready = self.reads.waiting.iter().filter(|(_, waiting)| waiting.round <= number);
        for read in ready.map(|(read, _)| *read).collect::<Vec<_>>() {
            if let Some(waiting) = self.reads.waiting.remove(&read) {
                self.answer(read, &waiting.goal);
            }
        }
        if !self.reads.waiting.is_empty() {
            self.start_round();
        }
    }
}
