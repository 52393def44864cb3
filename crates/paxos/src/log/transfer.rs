//! Leadership transfer: the leader stops accepting proposals, waits until the target has its whole log, and steps down.

use super::node::{Output, Rejection, Role};
use super::{EntrySize, Message, Node, Term};
use crate::NodeId;

/// A leadership transfer in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Transfer {
    term: Term,
    to: NodeId,
    /// The time at which the leader gives the transfer up and continues to lead.
    until_us: u64,
}

impl<V: Clone + EntrySize, S: Clone> Node<V, S> {
    /// Begins a leadership transfer to a voter, or reports the rejection.
    pub(super) fn transfer_leadership(&mut self, to: NodeId) {
        match self.check_transfer(to) {
            Ok(term) => {
                let until_us = self.now_us + self.options.election_us;
                self.transfer = Some(Transfer { term, to, until_us });
            }
            Err(rejection) => self.outputs.push(Output::TransferFailed(rejection)),
        }
    }

    fn check_transfer(&self, to: NodeId) -> Result<Term, Rejection> {
        let Role::Leader(leader) = &self.role else { return Err(Rejection::NotLeading(self.leader())) };
        if self.transfer.is_some() {
            return Err(Rejection::Transferring);
        }
        if self.store.is_changing() {
            return Err(Rejection::Changing);
        }
        if !leader.followers.iter().any(|follower| follower.node() == to) {
            return Err(Rejection::NotAVoter(to));
        }
        Ok(leader.term)
    }

    /// Advances a leadership transfer. If the target has the whole log, the leader steps down. If the deadline has
    /// passed, the leader continues to lead. If the node has lost leadership in the meantime, it reports that the
    /// transfer failed.
    pub(super) fn advance_transfer(&mut self) {
        let Some(Transfer { term, to, until_us }) = self.transfer else { return };
        let leader = match &self.role {
            Role::Leader(leader) if leader.term == term => leader,
            _ => {
                self.transfer = None;
                self.outputs.push(Output::TransferFailed(Rejection::NotLeading(self.leader())));
                return;
            }
        };
        let last = self.store.last();
        if leader.followers.iter().any(|follower| follower.node() == to && follower.matched() >= last) {
            self.transfer = None;
            self.resign(term, to);
        } else if self.now_us >= until_us {
            self.transfer = None;
            self.outputs.push(Output::TransferFailed(Rejection::TransferTimedOut));
        }
    }

    /// Steps down and informs all voters, the target first.
    fn resign(&mut self, term: Term, to: NodeId) {
        self.role = Role::Follower(None);
        self.heard_us = None;
        self.restart_election_timer();
        self.send(to, Message::TimeoutNow { term, to });
        let voters = self.store.configuration().clone();
        let me = self.me;
        for other in voters.acceptors().iter().filter(|voter| **voter != me && **voter != to) {
            self.send(*other, Message::TimeoutNow { term, to });
        }
        self.outputs.push(Output::LeadershipTransferred(to));
    }

    /// Handles a leader's message that it has stepped down (Raft's `TimeoutNow` for the target). The voters no longer
    /// refuse candidates because of that leader. The target starts an election without a pre-vote.
    pub(super) fn handle_timeout_now(&mut self, from: NodeId, term: Term, to: NodeId) {
        if term.leader() != from || term != self.store.promised_under(term.start()) || self.leads().is_some()
        {
            return;
        }
        self.heard_us = None;
        self.role = Role::Follower(None);
        self.restart_election_timer();
        if let Some(next) = self.next_term().filter(|_| to == self.me) {
            self.promise(next);
            self.request_votes(false, next);
        }
    }
}
