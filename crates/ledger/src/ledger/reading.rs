//! Answers, and how fresh they are.

use std::collections::BTreeMap;

use holdoff_paxos::log::{Message, Term};
use holdoff_paxos::{NodeId, Tally, planted};

use super::{How, Ledger, Letter, LogMessage, Output, ReadId};
use crate::certificate::Notary;
use crate::entry::Replicated;

/// What waits to be answered, and the round that must be over first.
pub(super) struct Reads<G> {
    waiting: BTreeMap<ReadId, Waiting<G>>,
    round: Option<Round>,
    number: u64,
    /// In this term this node may read without asking, until then.
    lease: Option<(Term, u64)>,
}

struct Waiting<G> {
    goal: G,
    /// The first round that began after the question.
    round: u64,
    until_us: u64,
}

#[derive(Clone, Copy)]
struct Round {
    term: Term,
    number: u64,
    sent_us: u64,
    said: Tally,
}

impl<G> Default for Reads<G> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), round: None, number: 0, lease: None }
    }
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Somebody wants to know something.
    pub(super) fn read(&mut self, read: ReadId, goal: M::Goal, how: How) {
        self.lead();
        let term = self.tenure.as_ref().map(|tenure| tenure.term);
        let is_full = self.reads.waiting.len() >= self.options.pending;
        let leased = |(of, until_us)| Some(of) == term && self.now_us < until_us;
        match how {
            How::Local => self.answer(read, &goal),
            How::Lease if self.reads.lease.is_some_and(leased) => self.answer(read, &goal),
            _ if term.is_none() || is_full => {
                let leader = self.log.leader().filter(|leader| *leader != self.me);
                self.outputs.push(Output::NotAnswered(read, leader));
            }
            How::Quorum | How::Lease => {
                let until_us = self.now_us + self.options.result_us;
                let round = self.reads.number + 1;
                self.reads.waiting.insert(read, Waiting { goal, round, until_us });
                if self.reads.round.is_none() {
                    self.probe();
                }
            }
        }
    }

    fn answer(&mut self, read: ReadId, goal: &M::Goal) {
        let result = self.state.machine.execute(&M::Overlay::default(), goal).map(|(_, answer)| answer);
        let index = self.state.index;
        self.outputs.push(Output::Answered { read, index, result });
    }

    /// Asks everybody whether this is still the term.
    fn probe(&mut self) {
        let Some(term) = self.tenure.as_ref().map(|tenure| tenure.term) else { return };
        self.reads.number += 1;
        let number = self.reads.number;
        let voters = self.log.store().configuration().clone();
        let mut said = Tally::default();
        said.count(self.me, &voters);
        self.reads.round = Some(Round { term, number, sent_us: self.now_us, said });
        for voter in said.missing(&voters) {
            self.send(voter, Letter::Probe(term, number));
        }
        self.count_round();
    }

    /// Asks again for whatever waits, and gives up what has waited too long or has no leader here any more.
    pub(super) fn probe_on(&mut self) {
        let leads = self.tenure.is_some();
        let late = |waiting: &Waiting<M::Goal>| !leads || waiting.until_us <= self.now_us;
        let ids = self.reads.waiting.iter().filter(|(_, waiting)| late(waiting)).map(|(read, _)| *read);
        let leader = self.log.leader().filter(|leader| *leader != self.me);
        for read in ids.collect::<Vec<_>>() {
            self.reads.waiting.remove(&read);
            self.outputs.push(Output::NotAnswered(read, leader));
        }
        let is_late = |round: &Round| round.sent_us + self.options.log.heartbeat_us <= self.now_us;
        if leads && self.reads.round.as_ref().is_none_or(is_late) {
            self.probe();
        }
    }

    /// Says that nobody else leads, and sees to it for the length of a lease.
    pub(super) fn vouch(&mut self, from: NodeId, term: Term, round: u64) {
        if self.log.store().promised() == term && term.leader() == from {
            self.vouched_us = self.vouched_us.max(self.now_us + self.options.lease_us);
            self.vouched = Some(term);
            self.send(from, Letter::Probed(term, round));
        }
    }

    /// Whether the one it has vouched for leads no longer in that term: it says so, or asks for votes in a later one, and has
    /// promised itself to take nothing of an earlier one. With that its lease is gone.
    pub(super) fn is_freed_by(&self, from: NodeId, message: &LogMessage<M>) -> bool {
        let Some(vouched) = self.vouched.filter(|vouched| vouched.leader() == from) else { return false };
        match message {
            Message::Lead { term, .. } => *term == vouched,
            Message::Vote(asked) => !asked.trial && asked.term.leader() == from && asked.term > vouched,
            _ => false,
        }
    }

    /// Whether it takes part in what it is told. While it has vouched for somebody it takes part in no election, but for
    /// saying to that one whether it would be let lead again: others decide now, perhaps.
    pub(super) fn may_hear(&self, from: NodeId, message: &LogMessage<M>) -> bool {
        let is_free = self.now_us >= self.vouched_us;
        match message {
            Message::Vote(asked) if asked.trial => {
                is_free || self.vouched.is_some_and(|term| term.leader() == from)
            }
            Message::Vote(_) | Message::Voted { .. } | Message::Lead { .. } => is_free,
            _ => true,
        }
    }

    /// Reads no more without asking: others are told in the same step that they need not wait.
    pub(super) fn drop_lease(&mut self) {
        if !planted!(ReadOn) {
            (self.reads.lease, self.reads.round, self.tenure) = (None, None, None);
        }
    }

    pub(super) fn probed(&mut self, from: NodeId, term: Term, number: u64) {
        let voters = self.log.store().configuration();
        if let Some(round) = self.reads.round.as_mut().filter(|it| (it.term, it.number) == (term, number)) {
            round.said.count(from, voters);
            self.count_round();
        }
    }

    /// A majority has said that this is still the term: what was asked before the round is answered.
    fn count_round(&mut self) {
        let Some(Round { term, number, sent_us, said }) = self.reads.round else { return };
        let leads = self.tenure.as_ref().is_some_and(|tenure| tenure.term == term);
        if !leads || self.log.leads() != Some(term) || !said.is_quorum(self.log.store().configuration()) {
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
            self.probe();
        }
    }
}
