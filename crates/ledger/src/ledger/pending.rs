//! Transactions that were submitted at this node: the node sends them to the leader until it applies their entries.

use holdoff_paxos::{NodeId, Slot};

use super::leading::Execution;
use super::{Ledger, Message, Outcome, Output, SubmissionId};
use crate::certificate::Notary;
use crate::entry::{ReplicatedMachine, TxId, TxKey};

/// A transaction that was submitted at this node and has no outcome yet. It is not in the history that this node has
/// applied.
pub(super) struct Pending<G> {
    goal: G,
    birth: Slot,
    /// True if this node has seen all transactions since the birth: the transaction is not in the history up to the last
    /// applied index.
    is_observed: bool,
    /// The leader refuses submissions with this birth, and had applied the history up to this index then.
    refused_at: Option<Slot>,
    /// The submissions that wait for the outcome, with their deadlines.
    callers: Vec<(SubmissionId, u64)>,
    /// The node that last received the transaction, and the time.
    asked: Option<(NodeId, u64)>,
}

/// What is known of a transaction at the deadline of a submission.
#[derive(Clone, Copy)]
enum LateOutcome {
    NoQuorum,
    Unknown { absent_through: Slot },
}

impl<A> From<LateOutcome> for Outcome<A> {
    fn from(late: LateOutcome) -> Self {
        match late {
            LateOutcome::NoQuorum => Self::NoQuorum,
            LateOutcome::Unknown { absent_through } => Self::Unknown { absent_through },
        }
    }
}

impl<G> Pending<G> {
    /// Returns what a node that has applied the history up to this index knows.
    fn late_outcome(&self, index: Slot) -> LateOutcome {
        match self.asked {
            None => LateOutcome::NoQuorum,
            // A node that is behind the caller has not applied the birth yet.
            Some(_) if self.is_observed => LateOutcome::Unknown { absent_through: self.birth.max(index) },
            Some(_) => LateOutcome::Unknown { absent_through: self.birth },
        }
    }
}

/// The state of routing pending transactions to the leader.
#[derive(Default)]
pub(super) struct Routing {
    /// The leader at the last routing.
    leader: Option<NodeId>,
    /// True if all pending transactions must be routed: the leader has changed, or time has passed.
    pub(super) all: bool,
    /// The transactions submitted since the last routing.
    fresh: Vec<TxId>,
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Accepts a submission, or ends it as `TooMany`.
    pub(super) fn submit(&mut self, submission: SubmissionId, tx: TxKey, goal: M::Goal, deadline_us: u64) {
        let tx_id = tx.id;
        let callers = self.pending.get(&tx_id).map(|pending| pending.callers.len());
        if callers.unwrap_or(self.pending.len()) >= self.options.pending {
            self.step.at_once(Output::Ended(submission, Outcome::TooMany));
            return;
        }
        let is_observed = tx.birth >= self.state.forgotten();
        let pending = self.pending.entry(tx_id).or_insert(Pending {
            goal,
            birth: tx.birth,
            is_observed,
            refused_at: None,
            callers: Vec::new(),
            asked: None,
        });
        pending.callers.push((submission, deadline_us));
        if tx.birth > pending.birth {
            (pending.birth, pending.refused_at) = (tx.birth, None);
            pending.is_observed |= is_observed;
        }
        self.routing.fresh.push(tx_id);
        self.end(tx_id);
    }

    /// Ends a pending transaction that is in the history.
    pub(super) fn end(&mut self, tx_id: TxId) {
        let Some((index, result)) = self.state.done(tx_id) else { return };
        let outcome = match result.clone() {
            Ok(result) => Outcome::Committed { index, result },
            Err(why) => Outcome::Failed { index, why },
        };
        self.end_with(tx_id, &outcome);
    }

    /// Ends all submissions of a pending transaction.
    fn end_with(&mut self, tx_id: TxId, outcome: &Outcome<M::Answer>) {
        for (submission, _) in self.pending.remove(&tx_id).into_iter().flat_map(|pending| pending.callers) {
            self.answer_caller(Output::Ended(submission, outcome.clone()));
        }
    }

    /// Ends all pending transactions that are in the history, after many entries have arrived at once.
    pub(super) fn end_done(&mut self) {
        let all: Vec<_> = self.pending.keys().copied().collect();
        for tx_id in all {
            self.end(tx_id);
        }
    }

    /// Notes that a snapshot has replaced the entries after an index. This node does not know whether the replaced entries
    /// contain the pending transactions, unless the dedup window reaches back to that index.
    pub(super) fn note_skipped(&mut self, after: Slot) {
        if after < self.state.forgotten() {
            self.pending.values_mut().for_each(|pending| pending.is_observed = false);
        }
    }

    /// Notes that no leader will execute a submission, and ends it if its outcome is known by now.
    pub(super) fn handle_submit_expired(&mut self, from: NodeId, tx: TxKey, through: Slot) {
        let is_voter = self.state.voters.contains(from);
        let pending = self.pending.get_mut(&tx.id).filter(|pending| is_voter && pending.birth == tx.birth);
        if let Some(pending) = pending {
            pending.refused_at = Some(through);
            self.end_refused(tx.id);
        }
    }

    /// Ends a submission that no leader will execute. A node that has seen all transactions since its birth first applies
    /// the entries that the leader had applied: they may contain the transaction.
    fn end_refused(&mut self, tx_id: TxId) {
        let Some(Pending { refused_at: Some(through), is_observed, .. }) = self.pending.get(&tx_id) else {
            return;
        };
        let outcome = match is_observed {
            true if self.state.index < *through => return,
            true => Outcome::Overtaken { absent_through: self.state.index },
            false => Outcome::Expired { through: *through },
        };
        self.end_with(tx_id, &outcome);
    }

    /// Ends the refused submissions whose outcome is known by now.
    pub(super) fn end_all_refused(&mut self) {
        let refused = self.pending.iter().filter(|(_, pending)| pending.refused_at.is_some());
        for tx_id in refused.map(|(tx_id, _)| *tx_id).collect::<Vec<_>>() {
            self.end_refused(tx_id);
        }
    }

    /// Ends the submissions whose deadline has passed. The index does not change. A transaction without a submission is no
    /// longer sent to the leader.
    pub(super) fn end_late(&mut self) {
        let (now_us, index, mut ended) = (self.now_us, self.state.index, Vec::new());
        for pending in self.pending.values_mut() {
            let outcome = pending.late_outcome(index);
            let late = pending.callers.extract_if(.., |(_, deadline_us)| *deadline_us <= now_us);
            ended.extend(late.map(|(submission, _)| (submission, outcome)));
        }
        self.pending.retain(|_, pending| !pending.callers.is_empty());
        for (submission, outcome) in ended {
            self.counts.late += 1;
            self.answer_caller(Output::Ended(submission, outcome.into()));
        }
    }

    /// Sends the pending transactions to the leader. A node that does not vote knows no leader; it sends them to a
    /// voter, which does.
    pub(super) fn route(&mut self) {
        let leader = self.log.leader();
        let is_new_leader = self.routing.leader != leader;
        if is_new_leader {
            (self.routing.leader, self.routing.all) = (leader, true);
        }
        let fresh = std::mem::take(&mut self.routing.fresh);
        let to = leader.or_else(|| self.some_voter());
        let Some(to) = to.filter(|to| *to != self.me || self.leader_state.is_some()) else {
            self.routing.all |= !fresh.is_empty();
            return;
        };
        let is_due = |pending: &Pending<M::Goal>| match pending.asked {
            Some((asked, at_us)) => {
                leader.is_some_and(|leader| leader != asked) || at_us + self.options.resend_us <= self.now_us
            }
            None => true,
        };
        let due: Vec<_> = if std::mem::take(&mut self.routing.all) {
            self.pending.iter().filter(|(_, pending)| is_due(pending)).map(|(tx_id, _)| *tx_id).collect()
        } else {
            let due = |tx_id: &TxId| self.pending.get(tx_id).is_some_and(is_due);
            fresh.into_iter().filter(due).collect()
        };
        for tx_id in due {
            self.ask(tx_id, to, is_new_leader);
        }
    }

    fn some_voter(&self) -> Option<NodeId> {
        let voters = self.state.voters.acceptors();
        let index = self.roll as usize % voters.len().max(1);
        voters.get(index).copied().filter(|_| !self.state.voters.contains(self.me))
    }

    fn ask(&mut self, tx_id: TxId, leader: NodeId, is_new_leader: bool) {
        let Some(pending) = self.pending.get_mut(&tx_id) else { return };
        let (goal, before) = (pending.goal.clone(), pending.asked);
        let tx = TxKey { id: tx_id, birth: pending.birth };
        pending.asked = Some((leader, self.now_us));
        if leader == self.me {
            match self.run(tx, &goal) {
                Execution::InLog => {}
                Execution::Expired => return self.handle_submit_expired(self.me, tx, self.state.index),
                Execution::NotNow => {
                    // The log has no entry for it, so the record of the last receiver is restored.
                    if let Some(pending) = self.pending.get_mut(&tx_id) {
                        pending.asked = before;
                    }
                    return;
                }
            }
        } else {
            let message = Message::Submit { tx_id, birth: tx.birth, goal, relayed_for: None };
            if is_new_leader {
                // A new leader serves after this node's acknowledgement, which waits for the disk: the transaction follows it.
                self.send(leader, message);
            } else {
                self.send_at_once(leader, message);
            }
        }
        let changed = |(from, _): &(NodeId, u64)| *from != leader && self.log.leader().is_some();
        if let Some((from, _)) = before.filter(changed) {
            self.counts.rerouted += 1;
            self.step.at_once(Output::Rerouted { tx_id, from, to: leader });
        }
    }
}
