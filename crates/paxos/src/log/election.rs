//! Elections: first a pre-vote, which binds no voter, then the vote.
//!
//! A voter grants a request if all conditions hold:
//!
//! | condition | reason |
//! |---|---|
//! | the term is the sender's, and not of an earlier configuration | an earlier configuration decides no more slots |
//! | the term is later than the promise, or equal to it in a vote | a promise never falls; repeated votes are equal |
//! | the candidate's position under the term's configuration is not less than the voter's | the winner must have all decided entries |
//! | the voter has room for a promise of that term | the number of promises is limited |
//! | the voter has not recently heard from another leader | a returning node must not disrupt a leader with a quorum |
//!
//! A voter that refuses a term of an earlier configuration names the decided change that replaced it. A candidate that has
//! this entry decides it, and asks the voters of the later configuration.

use super::node::{Leader, Role};
use super::progress::Progress;
use super::{EntryPayload, EntrySize, LogId, Message, Node, Record, Term, VoteRequest};
use crate::{Configuration, NodeId, Slot, Tally};

impl<V: Clone + EntrySize, S: Clone> Node<V, S> {
    /// Starts a pre-vote. A node that was partitioned does not win it, and raises no other node's term.
    pub(super) fn start_pre_vote(&mut self) {
        self.restart_election_timer();
        match self.next_term() {
            Some(term) => self.request_votes(true, term),
            None => self.role = Role::Follower(None),
        }
    }

    /// Schedules a pre-vote because of a hint that this node should lead. The earliest time is `election_us` after this
    /// node last heard from a leader: until about then the other voters refuse, because they have heard from that
    /// leader as recently. Hinted pre-votes are at least one heartbeat interval apart.
    pub(super) fn schedule_hinted_pre_vote(&mut self) {
        if matches!(self.role, Role::Leader(_) | Role::Candidate { is_pre_vote: false, .. }) {
            return;
        }
        let timed_out_us = self.heard_us.map_or(0, |heard_us| heard_us + self.options.election_us);
        let again_us =
            self.last_hinted_us.map_or(0, |last_hinted_us| last_hinted_us + self.options.heartbeat_us);
        self.hinted_us = Some(timed_out_us.max(again_us));
    }

    /// Starts a pre-vote because of a hint. If it does not succeed, the election timeout stays as it was: a wrong hint
    /// costs a round of messages.
    pub(super) fn start_hinted_pre_vote(&mut self) {
        let deadline_us = self.deadline_us;
        self.last_hinted_us = Some(self.now_us);
        self.start_pre_vote();
        if !matches!(self.role, Role::Candidate { is_pre_vote: false, .. }) {
            self.deadline_us = deadline_us;
        }
    }

    /// Returns this node's next term, if the node is a voter of the active configuration.
    pub(super) fn next_term(&self) -> Option<Term> {
        let start = self.store.start();
        let promised = self.store.promised_under(start);
        let before = if promised.start() == start {
            promised.attempt().max(self.highest_attempt)
        } else {
            self.highest_attempt
        };
        let is_voter = self.store.configuration().contains(self.me);
        let attempt = before.checked_add(1).filter(|_| is_voter)?;
        Some(Term::new(start, attempt, self.me))
    }

    pub(super) fn request_votes(&mut self, is_pre_vote: bool, term: Term) {
        let voters = self.store.configuration().clone();
        let mut votes = Votes::of(voters.clone());
        votes.count(self.me);
        self.role = Role::Candidate { is_pre_vote, term, votes };
        let (accepted, last, me) = (self.store.accepted(), self.store.last(), self.me);
        for node in voters.acceptors().iter().filter(|voter| **voter != me) {
            self.send(*node, Message::RequestVote(VoteRequest { is_pre_vote, term, accepted, last }));
        }
        self.count_votes();
    }

    /// Handles a request for a vote or a pre-vote.
    pub(super) fn handle_vote_request(&mut self, from: NodeId, asked: VoteRequest) {
        let promised = self.store.promised_under(asked.term.start());
        let is_next = if asked.is_pre_vote { asked.term > promised } else { asked.term >= promised };
        let is_sound = asked.term.leader() == from && asked.term.is_sound();
        let is_known = is_sound && asked.term.start() >= self.store.start();
        // The winner must have every entry that may be decided. Among the voters that accepted in the latest accepted
        // term, the longest log has all of these entries.
        let position = |accepted, last| position_under(asked.term.start(), accepted, last);
        let mine = position(self.store.accepted(), self.store.last());
        let has_all = position(asked.accepted, asked.last) >= mine;
        let can_promise = self.store.promises().has_room_for(asked.term);
        let granted = is_known && is_next && has_all && can_promise && !self.hears_another_leader(from);
        if granted && !asked.is_pre_vote {
            if asked.term > promised {
                self.promise(asked.term);
            }
            self.role = Role::Follower(None);
            self.restart_election_timer();
        }
        let promised = self.store.promised_under(asked.term.start());
        let decided_change = self.store.change_after(asked.term.start());
        let VoteRequest { is_pre_vote, term, .. } = asked;
        self.send(from, Message::VoteReply { is_pre_vote, term, granted, promised, decided_change });
    }

    /// Promises a term: from now on this node accepts nothing of an earlier term.
    pub(super) fn promise(&mut self, term: Term) {
        let promises = self.store.promises().with(term);
        self.persist(Record::Promised(promises));
    }

    /// Returns whether this node has recently heard from a leader other than `node`, or is itself a leader with a
    /// quorum.
    fn hears_another_leader(&self, node: NodeId) -> bool {
        match &self.role {
            Role::Leader(leader) => self.has_quorum(leader),
            Role::Follower(leader) if *leader == Some(node) => false,
            _ => self.heard_us.is_some_and(|heard_us| heard_us + self.options.election_us > self.now_us),
        }
    }

    /// Counts a granted vote or pre-vote.
    pub(super) fn handle_vote(&mut self, from: NodeId, is_pre_vote: bool, term: Term) {
        if !self.is_candidate_of(is_pre_vote, term) {
            return;
        }
        if let Role::Candidate { votes, .. } = &mut self.role {
            votes.count(from);
        }
        self.count_votes();
    }

    /// Handles a refused vote or pre-vote.
    pub(super) fn handle_vote_refusal(
        &mut self,
        from: NodeId,
        is_pre_vote: bool,
        term: Term,
        promised: Term,
        decided_change: Option<LogId>,
    ) {
        if self.is_candidate_of(is_pre_vote, term) {
            self.note_attempt(promised);
            self.learn_decided_change(from, decided_change);
        }
    }

    fn is_candidate_of(&self, is_pre_vote: bool, term: Term) -> bool {
        matches!(self.role, Role::Candidate { is_pre_vote: of_pre_vote, term: of, .. }
            if (of_pre_vote, of) == (is_pre_vote, term))
    }

    /// Decides a configuration change of this node's log that a voter knows to be decided.
    ///
    /// Without this rule a decided change could stay unknown for ever: a leader that has decided its own removal refuses
    /// the votes of the earlier configuration, and may not become a candidate of the later one.
    pub(super) fn learn_decided_change(&mut self, from: NodeId, change: Option<LogId>) {
        let Some(change) = change.filter(|_| self.store.configuration().contains(from)) else { return };
        if self.store.log_id(change.slot) == Some(change) {
            self.decide(change.slot);
        }
    }

    fn count_votes(&mut self) {
        let Role::Candidate { is_pre_vote, term, ref votes } = self.role else { return };
        if !votes.is_quorum() {
            return;
        }
        if is_pre_vote {
            self.promise(term);
            self.restart_election_timer();
            self.request_votes(false, term);
        } else {
            self.become_leader(term);
        }
    }

    /// Becomes leader, unless the term's configuration is no longer active: such a term has no leader.
    fn become_leader(&mut self, term: Term) {
        if term.start() == self.store.start() {
            self.begin_term(term);
        } else {
            self.role = Role::Follower(None);
        }
    }

    /// Begins to lead: accepts the whole log in its own term and appends a no-op entry, unless the log ends with an
    /// undecided configuration change.
    pub(super) fn begin_term(&mut self, term: Term) {
        let inherited = self.store.last();
        self.persist(Record::Accepted { term, last: inherited });
        let others = self.store.configuration().acceptors().iter().filter(|node| **node != self.me);
        let followers = others.map(|node| Progress::new(*node, inherited, self.now_us)).collect();
        let no_op = (!self.store.is_changing()).then(|| inherited.next());
        let (stored, heartbeat_sent_us) = (None, self.now_us);
        self.role = Role::Leader(Leader { term, inherited, no_op, followers, stored, heartbeat_sent_us });
        if no_op.is_some() {
            self.append_own(term, EntryPayload::NoOp);
        }
        self.send_heartbeats();
        self.count_matched();
    }

    /// Notes the attempt of a term that caused a refusal: this node's next attempt is higher.
    pub(super) fn note_attempt(&mut self, promised: Term) {
        if promised.start() == self.store.start() {
            self.highest_attempt = self.highest_attempt.max(promised.attempt());
        }
    }

    /// Reacts to a new active configuration. A leader steps down, after a last heartbeat that announces the decision,
    /// and starts a pre-vote among the new voters. A candidate steps down: its term and its votes belong to the earlier
    /// configuration.
    pub(super) fn apply_configuration(&mut self) {
        self.highest_attempt = 0;
        self.heard_us = None;
        match self.role {
            Role::Leader(_) => {
                self.send_heartbeats();
                self.start_pre_vote();
            }
            Role::Candidate { .. } => {
                self.role = Role::Follower(None);
                self.restart_election_timer();
            }
            Role::Follower(_) => {}
        }
    }
}

/// The votes of a candidacy, counted among the voters of the configuration under which the candidate asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Votes {
    pub(super) voters: Configuration,
    pub(super) tally: Tally,
}

impl Votes {
    fn of(voters: Configuration) -> Self {
        Self { voters, tally: Tally::default() }
    }

    fn count(&mut self, voter: NodeId) {
        self.tally.count(voter, &self.voters);
    }

    fn is_quorum(&self) -> bool {
        self.tally.is_quorum(&self.voters)
    }
}

/// Returns the position by which an election under the configuration with this start compares logs.
///
/// A log that was last accepted under an earlier configuration contains no accepted entry from the start on. The
/// candidate has all earlier entries, because it knows that the slots before the start are decided. The term in which
/// the log accepted these slots is therefore irrelevant, however late it is.
fn position_under(start: Slot, accepted: Term, last: Slot) -> (Term, Slot) {
    if accepted.start() < start { (Term::none(), Slot(start.0.saturating_sub(1))) } else { (accepted, last) }
}
