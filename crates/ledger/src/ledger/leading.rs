//! The leader: it executes goals over the decided state and the entries in flight, and proposes the results.

use std::collections::BTreeSet;

use holdoff_paxos::Slot;
use holdoff_paxos::log::{self, EntryPayload, Term};

use super::{Ledger, Message};
use crate::certificate::Notary;
use crate::entry::{Hash, ReplicatedMachine, Transaction, TxId, link};
use crate::state::State;

/// The uncommitted part of a leader's state. The node drops it when it stops leading; the state never contains it.
pub(super) struct LeaderState<M: ReplicatedMachine> {
    pub(super) term: Term,
    pub(super) over: M::Overlay,
    flight: BTreeSet<TxId>,
    last: Slot,
    head: Hash,
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
    pub(super) fn handle_submit(&mut self, tx_id: TxId, goal: M::Goal, relayed: bool) {
        self.lead();
        match self.log.leader().filter(|leader| *leader != self.me) {
            Some(leader) if !relayed => self.send(leader, Message::Submit { tx_id, goal, relayed: true }),
            Some(_) => {}
            None => drop(self.run(tx_id, &goal)),
        }
    }

    /// Executes a goal unless its transaction is already in flight or done. Returns true if its entry is in the log.
    pub(super) fn run(&mut self, tx_id: TxId, goal: &M::Goal) -> bool {
        if self.state.done(tx_id).is_some() {
            return true;
        }
        let store = self.log.store();
        let has_room = store.last().0 - store.decided().0 < self.options.log.undecided;
        let Some(leader_state) = &mut self.leader_state else { return false };
        if leader_state.flight.contains(&tx_id) {
            return true;
        }
        if !has_room || self.log.is_transferring() || leader_state.last != store.last() {
            return false;
        }
        let (diff, result) = match self.state.machine.execute(&leader_state.over, goal) {
            Ok((diff, answer)) => (diff, Ok(answer)),
            Err(failed) => (M::Diff::default(), Err(failed)),
        };
        if self.state.machine.stage(&mut leader_state.over, diff.clone()).is_err() {
            self.leader_state = None;
            return false;
        }
        let (index, term, prev_hash) = (leader_state.last.next(), leader_state.term, leader_state.head);
        let state_hash = self.state.machine.hash(&leader_state.over);
        let goal = goal.clone();
        let entry = Transaction { index, term, prev_hash, tx_id, goal, diff, result, state_hash };
        let logged = log::Entry { term, payload: EntryPayload::Value(entry.clone()) };
        let Some(head) = link(prev_hash, index, &logged) else {
            self.leader_state = None;
            return false;
        };
        (leader_state.last, leader_state.head) = (index, head);
        leader_state.flight.insert(tx_id);
        self.log(log::Input::Propose(entry));
        self.state.done(tx_id).is_some() || self.leader_state.is_some()
    }

    /// Removes a decided transaction from the set in flight.
    pub(super) fn remove_from_flight(&mut self, tx_id: TxId) {
        if let Some(leader_state) = &mut self.leader_state {
            leader_state.flight.remove(&tx_id);
        }
    }
}
