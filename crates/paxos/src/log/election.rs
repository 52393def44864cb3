//! Elections: first a pre-vote, which binds no voter, then the vote.
//!
//! A voter grants a request if all conditions hold:
//!
//! | condition | reason |
//! |---|---|
//! | the term is the sender's, and not of an earlier configuration | an earlier configuration decides no more slots |
//! | the term is later than the promise, or equal to it in a vote | a promise never falls; repeated votes are equal |
//! | the candidate's `(accepted, last)` is not less than the voter's | the winner must have all decided entries |
//! | the voter has room for a promise of that term | the number of promises is limited |
//! | the voter has not recently heard from another leader | a returning node must not disrupt a leader with a quorum |

use super::node::{Leader, Role};
use super::progress::Progress;
use super::{Candidacy, Message, Node, Payload, Record, Term};
use crate::{NodeId, Tally};

impl<V: Clone, S: Clone> Node<V, S> {
    /// Starts a pre-vote. A node that was partitioned does not win it, and raises no other node's term.
    pub(super) fn run_for_trial(&mut self) {
        self.wait();
        match self.next_term() {
            Some(term) => self.run(true, term),
            None => self.role = Role::Follower(None),
        }
    }

    /// Schedules a pre-vote because of a hint that this node should lead. The earliest time is `election_us` after this
    /// node last heard from a leader: until about then the other voters refuse, because they have heard from that
    /// leader as recently. Hinted pre-votes are at least one heartbeat interval apart.
    pub(super) fn urge(&mut self) {
        if matches!(self.role, Role::Leader(_) | Role::Candidate { trial: false, .. }) {
            return;
        }
        let given_up_us = self.heard_us.map_or(0, |heard_us| heard_us + self.options.election_us);
        let again_us = self.ran_us.map_or(0, |ran_us| ran_us + self.options.heartbeat_us);
        self.urged_us = Some(given_up_us.max(again_us));
    }

    /// Starts a pre-vote because of a hint. If it does not succeed, the election timeout stays as it was: a wrong hint
    /// costs a round of messages.
    pub(super) fn run_when_urged(&mut self) {
        let deadline_us = self.deadline_us;
        self.ran_us = Some(self.now_us);
        self.run_for_trial();
        if !matches!(self.role, Role::Candidate { trial: false, .. }) {
            self.deadline_us = deadline_us;
        }
    }

    /// Returns this node's next term, if the node is a voter of the active configuration.
    pub(super) fn next_term(&self) -> Option<Term> {
        let start = self.store.start();
        let promised = self.store.promised_under(start);
        let before = if promised.start() == start { promised.attempt().max(self.seen) } else { self.seen };
        let may_run = self.store.configuration().contains(self.me);
        let attempt = before.checked_add(1).filter(|_| may_run)?;
        Some(Term::new(start, attempt, self.me))
    }

    pub(super) fn run(&mut self, trial: bool, term: Term) {
        let mut granted = Tally::default();
        granted.count(self.me, self.store.configuration());
        self.role = Role::Candidate { trial, term, granted };
        let (accepted, last) = (self.store.accepted(), self.store.last());
        let configuration = self.store.configuration().clone();
        for node in granted.missing(&configuration) {
            self.send(node, Message::Vote(Candidacy { trial, term, accepted, last }));
        }
        self.count();
    }

    /// Handles a request for a vote or a pre-vote.
    pub(super) fn vote(&mut self, from: NodeId, asked: Candidacy) {
        let promised = self.store.promised_under(asked.term.start());
        let is_next = if asked.trial { asked.term > promised } else { asked.term >= promised };
        let is_sound = asked.term.leader() == from && asked.term.is_sound();
        let is_known = is_sound && asked.term.start() >= self.store.start();
        // The winner must have every entry that may be decided. Among the voters that accepted in the latest accepted
        // term, the longest log has all of these entries.
        let has_all = (asked.accepted, asked.last) >= (self.store.accepted(), self.store.last());
        let can_promise = self.store.promises().have_room_for(asked.term);
        let granted = is_known && is_next && has_all && can_promise && !self.hears_another(from);
        if granted && !asked.trial {
            if asked.term > promised {
                self.promise(asked.term);
            }
            self.role = Role::Follower(None);
            self.wait();
        }
        let promised = self.store.promised_under(asked.term.start());
        self.send(from, Message::Voted { trial: asked.trial, term: asked.term, granted, promised });
    }

    /// Promises a term: from now on this node accepts nothing of an earlier term.
    pub(super) fn promise(&mut self, term: Term) {
        let promises = self.store.promises().with(term);
        self.keep(Record::Promised(promises));
    }

    /// Returns whether this node has recently heard from a leader other than `node`, or is itself a leader with a
    /// quorum.
    fn hears_another(&self, node: NodeId) -> bool {
        match &self.role {
            Role::Leader(leader) => self.is_followed(leader),
            Role::Follower(leader) if *leader == Some(node) => false,
            _ => self.heard_us.is_some_and(|heard_us| heard_us + self.options.election_us > self.now_us),
        }
    }

    /// Handles a voter's answer.
    pub(super) fn voted(&mut self, from: NodeId, trial: bool, term: Term, granted: bool, promised: Term) {
        let Role::Candidate { trial: of_trial, term: of, granted: tally } = &mut self.role else { return };
        if (*of_trial, *of) != (trial, term) {
            return;
        }
        if !granted {
            self.note(promised);
            return;
        }
        tally.count(from, self.store.configuration());
        self.count();
    }

    fn count(&mut self) {
        let Role::Candidate { trial, term, granted } = self.role else { return };
        if !granted.is_quorum(self.store.configuration()) {
            return;
        }
        if trial {
            self.promise(term);
            self.wait();
            self.run(false, term);
        } else {
            self.take_over(term);
        }
    }

    /// Becomes leader. It accepts its whole log in its own term and appends a no-op entry, unless the log ends with an
    /// undecided configuration change.
    fn take_over(&mut self, term: Term) {
        let inherited = self.store.last();
        self.keep(Record::Accepted { term, last: inherited });
        let others = self.store.configuration().acceptors().iter().filter(|node| **node != self.me);
        let followers = others.map(|node| Progress::new(*node, inherited, self.now_us)).collect();
        let barrier = (!self.store.is_changing()).then(|| inherited.next());
        let (stored, beat_us) = (None, self.now_us);
        self.role = Role::Leader(Leader { term, inherited, barrier, followers, stored, beat_us });
        if barrier.is_some() {
            self.add(term, Payload::Barrier);
        }
        self.beat();
        self.count_matched();
    }

    /// Notes the attempt of a term that caused a refusal: this node's next attempt is higher.
    pub(super) fn note(&mut self, promised: Term) {
        if promised.start() == self.store.start() {
            self.seen = self.seen.max(promised.attempt());
        }
    }

    /// Reacts to a new active configuration. A leader steps down, after a last heartbeat that announces the decision,
    /// and starts a pre-vote among the new voters.
    pub(super) fn hand_over(&mut self) {
        self.seen = 0;
        self.heard_us = None;
        if matches!(self.role, Role::Leader(_)) {
            self.beat();
            self.run_for_trial();
        }
    }
}
