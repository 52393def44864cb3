//! Transactions that were submitted at this node: the node sends them to the leader until it applies their entries.

use holdoff_paxos::NodeId;

use super::{Ledger, Message, Outcome, Output};
use crate::certificate::Notary;
use crate::entry::{ReplicatedMachine, TxId};

pub(super) struct Pending<G> {
    goal: G,
    until_us: u64,
    /// The node that last received the transaction, and the time.
    asked: Option<(NodeId, u64)>,
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
    /// Accepts a submitted transaction, or ends it as `TooMany`.
    pub(super) fn submit(&mut self, tx_id: TxId, goal: M::Goal) {
        if self.pending.len() >= self.options.pending && !self.pending.contains_key(&tx_id) {
            self.outputs.push(Output::Ended(tx_id, Outcome::TooMany));
            return;
        }
        let until_us = self.now_us + self.options.result_us;
        let pending = self.pending.entry(tx_id).or_insert(Pending { goal, until_us, asked: None });
        pending.until_us = until_us;
        self.routing.fresh.push(tx_id);
        self.end(tx_id);
    }

    /// Ends a pending transaction that is in the history.
    pub(super) fn end(&mut self, tx_id: TxId) {
        let Some((index, result)) = self.state.done(tx_id) else { return };
        if self.pending.remove(&tx_id).is_some() {
            let outcome = match result.clone() {
                Ok(result) => Outcome::Committed { index, result },
                Err(why) => Outcome::Failed { index, why },
            };
            self.outputs.push(Output::Ended(tx_id, outcome));
        }
    }

    /// Ends all pending transactions that are in the history, after many entries have arrived at once.
    pub(super) fn end_done(&mut self) {
        let all: Vec<_> = self.pending.keys().copied().collect();
        for tx_id in all {
            self.end(tx_id);
        }
    }

    /// Ends the pending transactions whose result timeout has expired. The index does not change.
    pub(super) fn end_late(&mut self) {
        let late = |pending: &Pending<M::Goal>| pending.until_us <= self.now_us;
        let ids = self.pending.iter().filter(|(_, pending)| late(pending)).map(|(tx_id, _)| *tx_id);
        for tx_id in ids.collect::<Vec<_>>() {
            let Some(pending) = self.pending.remove(&tx_id) else { continue };
            self.counts.late += 1;
            let outcome = if pending.asked.is_some() { Outcome::Unknown } else { Outcome::NoQuorum };
            self.outputs.push(Output::Ended(tx_id, outcome));
        }
    }

    /// Sends the pending transactions to the leader. A node that does not vote knows no leader; it sends them to a
    /// voter, which does.
    pub(super) fn route(&mut self) {
        let leader = self.log.leader();
        if self.routing.leader != leader {
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
            self.ask(tx_id, to);
        }
    }

    fn some_voter(&self) -> Option<NodeId> {
        let voters = self.state.voters.acceptors();
        let index = self.roll as usize % voters.len().max(1);
        voters.get(index).copied().filter(|_| !self.state.voters.contains(self.me))
    }

    fn ask(&mut self, tx_id: TxId, leader: NodeId) {
        let Some(pending) = self.pending.get_mut(&tx_id) else { return };
        let (goal, before) = (pending.goal.clone(), pending.asked);
        pending.asked = Some((leader, self.now_us));
        if leader != self.me {
            self.send(leader, Message::Submit { tx_id, goal, relayed: false });
        } else if !self.run(tx_id, &goal) {
            // The log has no entry for it, so the record of the last receiver is restored.
            if let Some(pending) = self.pending.get_mut(&tx_id) {
                pending.asked = before;
            }
            return;
        }
        let changed = |(from, _): &(NodeId, u64)| *from != leader && self.log.leader().is_some();
        if let Some((from, _)) = before.filter(changed) {
            self.counts.rerouted += 1;
            self.outputs.push(Output::Rerouted { tx_id, from, to: leader });
        }
    }
}
