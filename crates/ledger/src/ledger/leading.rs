//! The leader: it executes goals over the decided state and the entries in flight, and proposes the results.

use std::collections::BTreeSet;

use holdoff_paxos::log::{self, EntryPayload, Term};
use holdoff_paxos::{NodeId, Slot};

use super::{Ledger, Message};
use crate::certificate::Notary;
use crate::entry::{Hash, ReplicatedMachine, Transaction, TxId, TxKey, link};
use crate::machine::GoalError;
use crate::state::State;

/// The uncommitted part of a leader's state. The node drops it when it stops leading; the state never contains it.
pub(super) struct LeaderState<M: ReplicatedMachine> {
    pub(super) term: Term,
    pub(super) over: M::Overlay,
    flight: BTreeSet<TxId>,
    last: Slot,
    head: Hash,
}

/// The result of an attempt to execute a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Execution {
    /// The log has an entry for the transaction, or the transaction is done.
    InLog,
    /// This node does not serve, or has no room: the submitting node sends the transaction again later.
    NotNow,
    /// The birth of the submission is before the dedup window.
    Expired,
}

impl<M: ReplicatedMachine> LeaderState<M> {
    /// Builds the overlay of all undecided entries of the log on this state. Returns `None` if the log does not
    /// continue from that state.
    fn begin(term: Term, state: &State<M>, store: &super::Store<M>) -> Option<Self> {
        let mut leader_state = Self {
            term,
            over: M::Overlay::default(),
            flight: BTreeSet::new(),
            last: state.index,
            head: state.hash,
        };
        while leader_state.last < store.last() {
            let slot = leader_state.last.next();
            let entry = store.entry(slot).filter(|entry| entry.term == term)?;
            // A configuration change is undecided: no entry may follow it.
            let EntryPayload::Value(value) = &entry.payload else { return None };
            state.machine.stage(&mut leader_state.over, value.diff.clone()).ok()?;
            leader_state.flight.insert(value.tx_id);
            (leader_state.last, leader_state.head) = (slot, link(leader_state.head, slot, entry)?);
        }
        Some(leader_state)
    }
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Starts to serve when this node leads and has applied all entries that were decided earlier. Stops when this
    /// node no longer leads.
    pub(super) fn lead(&mut self) {
        let term = self.log.leads().filter(|_| self.log.is_ready());
        if self.leader_state.as_ref().map(|leader_state| leader_state.term) == term {
            return;
        }
        let is_level = self.state.index == self.log.store().decided();
        self.leader_state = term
            .filter(|_| is_level)
            .and_then(|term| LeaderState::begin(term, &self.state, self.log.store()));
    }

    /// Executes a transaction that another node has sent, if this node leads. If another node leads, forwards the
    /// transaction to that leader, once. If no leader is known, the submitting node sends it again later.
    pub(super) fn handle_submit(
        &mut self,
        from: NodeId,
        tx: TxKey,
        goal: M::Goal,
        relayed_for: Option<NodeId>,
    ) {
        self.lead();
        let TxKey { id: tx_id, birth } = tx;
        match self.log.leader().filter(|leader| *leader != self.me) {
            Some(leader) if relayed_for.is_none() => {
                self.send_at_once(leader, Message::Submit { tx_id, birth, goal, relayed_for: Some(from) });
            }
            Some(_) => {}
            None => {
                if self.run(tx, &goal) == Execution::Expired {
                    let through = self.state.index;
                    self.send_at_once(
                        relayed_for.unwrap_or(from),
                        Message::SubmitExpired { tx_id, birth, through },
                    );
                }
            }
        }
    }

    /// Executes a goal unless its transaction is already in flight or done, or may have been committed and forgotten.
    ///
    /// The log of a leader that serves has every entry that is decided or can still be decided, except for entries of
    /// later leaders, which have at least this leader's dedup window behind them. [`Execution::Expired`] is therefore
    /// final.
    pub(super) fn run(&mut self, tx: TxKey, goal: &M::Goal) -> Execution {
        let tx_id = tx.id;
        if self.state.done(tx_id).is_some() {
            return Execution::InLog;
        }
        let store = self.log.store();
        let has_room = store.last().0 - store.decided().0 < self.options.log.undecided;
        let Some(leader_state) = &mut self.leader_state else { return Execution::NotNow };
        if leader_state.flight.contains(&tx_id) {
            return Execution::InLog;
        }
        if tx.birth < self.state.forgotten() {
            self.counts.expired += 1;
            return Execution::Expired;
        }
        if !has_room || self.log.is_transferring() || leader_state.last != store.last() {
            return Execution::NotNow;
        }
        let (machine, most) = (&self.state.machine, self.options.max_state_bytes as u64);
        // A goal that frees space, or changes values in place, always fits.
        let fits = |diff: &M::Diff| {
            let growth = u64::try_from(M::growth(diff)).unwrap_or(0);
            growth == 0 || machine.bytes(&leader_state.over).saturating_add(growth) <= most
        };
        let (diff, result) = match machine.execute(&leader_state.over, goal) {
            Ok((diff, answer)) if fits(&diff) => (diff, Ok(answer)),
            Ok(_) => (M::Diff::default(), Err(GoalError::Full { most })),
            Err(failed) => (M::Diff::default(), Err(failed)),
        };
        if self.state.machine.stage(&mut leader_state.over, diff.clone()).is_err() {
            self.leader_state = None;
            return Execution::NotNow;
        }
        let (index, term, prev_hash) = (leader_state.last.next(), leader_state.term, leader_state.head);
        let state_hash = self.state.machine.hash(&leader_state.over);
        let goal = goal.clone();
        let entry = Transaction { index, term, prev_hash, tx_id, goal, diff, result, state_hash };
        let logged = log::Entry { term, payload: EntryPayload::Value(entry.clone()) };
        let Some(head) = link(prev_hash, index, &logged) else {
            self.leader_state = None;
            return Execution::NotNow;
        };
        (leader_state.last, leader_state.head) = (index, head);
        leader_state.flight.insert(tx_id);
        self.log(log::Input::Propose(entry));
        let is_logged = self.state.done(tx_id).is_some() || self.leader_state.is_some();
        if is_logged { Execution::InLog } else { Execution::NotNow }
    }

    /// Removes a decided transaction from the set in flight.
    pub(super) fn remove_from_flight(&mut self, tx_id: TxId) {
        if let Some(leader_state) = &mut self.leader_state {
            leader_state.flight.remove(&tx_id);
        }
    }
}
