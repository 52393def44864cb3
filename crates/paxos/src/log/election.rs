//! Who comes to lead: first a trial, in which nobody promises anything, then the vote.

use super::node::{Leader, Role};
use super::progress::Progress;
use super::{Candidacy, Message, Node, Payload, Record, Term};
use crate::{NodeId, Tally};

impl<V: Clone, S: Clone> Node<V, S> {
    /// Asks whether it would be let lead. Whoever was cut off asks in vain, and disturbs nobody.
    pub(super) fn run_for_trial(&mut self) {
        self.wait();
        match self.next_term() {
            Some(term) => self.run(true, term),
            None => self.role = Role::Follower(None),
        }
    }

    /// Means to ask as soon as others may listen: they refuse while they have heard of a leader, as lately as this one has.
    /// Not more often than a leader is heard of.
    pub(super) fn urge(&mut self) {
        if matches!(self.role, Role::Leader(_) | Role::Candidate { trial: false, .. }) {
            return;
        }
        let given_up_us = self.heard_us.map_or(0, |heard_us| heard_us + self.options.election_us);
        let again_us = self.ran_us.map_or(0, |ran_us| ran_us + self.options.heartbeat_us);
        self.urged_us = Some(given_up_us.max(again_us));
    }

    /// Asks because others think that it should. If that comes to nothing its patience is as it was: a lie costs a round of
    /// messages.
    pub(super) fn run_when_urged(&mut self) {
        let deadline_us = self.deadline_us;
        self.ran_us = Some(self.now_us);
        self.run_for_trial();
        if !matches!(self.role, Role::Candidate { trial: false, .. }) {
            self.deadline_us = deadline_us;
        }
    }

    /// The next term of its own, if it may lead.
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

    /// Somebody asks to lead.
    pub(super) fn vote(&mut self, from: NodeId, asked: Candidacy) {
        let promised = self.store.promised_under(asked.term.start());
        let is_next = if asked.trial { asked.term > promised } else { asked.term >= promised };
        let is_sound = asked.term.leader() == from && asked.term.is_sound();
        let is_known = is_sound && asked.term.start() >= self.store.start();
        // Whoever may lead has all that may be decided: among those who have accepted in the latest term any of
        // us has, the longest log has it.
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

    /// Takes nothing of an earlier term from now on.
    pub(super) fn promise(&mut self, term: Term) {
        let promises = self.store.promises().with(term);
        self.keep(Record::Promised(promises));
    }

    /// Whether somebody else leads, and lives.
    fn hears_another(&self, node: NodeId) -> bool {
        match &self.role {
            Role::Leader(leader) => self.is_followed(leader),
            Role::Follower(leader) if *leader == Some(node) => false,
            _ => self.heard_us.is_some_and(|heard_us| heard_us + self.options.election_us > self.now_us),
        }
    }

    /// A voter has answered.
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

    /// Leads: what it has is accepted in its own term from now on, and a barrier goes on top of it.
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

    /// The latest attempt that stood in anybody's way: the next one jumps over it.
    pub(super) fn note(&mut self, promised: Term) {
        if promised.start() == self.store.start() {
            self.seen = self.seen.max(promised.attempt());
        }
    }

    /// Others decide what comes next: whoever leads leads no longer, and may ask them.
    pub(super) fn hand_over(&mut self) {
        self.seen = 0;
        self.heard_us = None;
        if matches!(self.role, Role::Leader(_)) {
            self.beat();
            self.run_for_trial();
        }
    }
}
