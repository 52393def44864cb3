//! The leader: it executes goals over the decided state and the entries in flight, and proposes the results.

use std::collections::BTreeSet;

use holdoff_paxos::log::{self, Payload, Term};
use holdoff_paxos::{Slot, planted};

use super::{Ledger, Letter};
use crate::certificate::Notary;
use crate::entry::{Entry, Hash, Replicated, TxId, link};
use crate::state::State;

/// The uncommitted part of a leader's state. The node drops it when it stops leading; the state never contains it.
pub(super) struct Tenure<M: Replicated> {
    pub(super) term: Term,
    pub(super) over: M::Overlay,
    flight: BTreeSet<TxId>,
    last: Slot,
    head: Hash,
}

impl<M: Replicated> Tenure<M> {
    /// Builds the overlay of all undecided entries of the log on this state. Returns `None` if the log does not
    /// continue from that state.
    fn begin(term: Term, state: &State<M>, store: &super::Store<M>) -> Option<Self> {
        let mut tenure = Self {
            term,
            over: M::Overlay::default(),
            flight: BTreeSet::new(),
            last: state.index,
            head: state.hash,
        };
        while tenure.last < store.last() {
            let slot = tenure.last.next();
            let entry = store.entry(slot).filter(|entry| entry.term == term)?;
            // A configuration change is undecided: no entry may follow it.
            let Payload::Value(value) = &entry.payload else { return None };
            state.machine.lay(&mut tenure.over, value.diff.clone()).ok()?;
            tenure.flight.insert(value.tx_id);
            (tenure.last, tenure.head) = (slot, link(tenure.head, slot, entry)?);
        }
        Some(tenure)
    }
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Starts to serve when this node leads and has applied all entries that were decided earlier. Stops when this
    /// node no longer leads.
    pub(super) fn lead(&mut self) {
        let term = self.log.leads().filter(|_| self.log.is_ready());
        let reads_on = planted!(ReadOn) && term.is_none();
        if reads_on || self.tenure.as_ref().map(|tenure| tenure.term) == term {
            return;
        }
        let is_level = self.state.index == self.log.store().decided();
        self.tenure =
            term.filter(|_| is_level).and_then(|term| Tenure::begin(term, &self.state, self.log.store()));
    }

    /// Executes a transaction that another node has sent, if this node leads. If another node leads, forwards the
    /// transaction to that leader, once. If no leader is known, the submitting node sends it again later.
    pub(super) fn take_from(&mut self, tx_id: TxId, goal: M::Goal, relayed: bool) {
        self.lead();
        match self.log.leader().filter(|leader| *leader != self.me) {
            Some(leader) if !relayed => self.send(leader, Letter::Submit { tx_id, goal, relayed: true }),
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
        let Some(tenure) = &mut self.tenure else { return false };
        if tenure.flight.contains(&tx_id) {
            return true;
        }
        if !has_room || self.log.hands_over() || tenure.last != store.last() {
            return false;
        }
        let (diff, result) = match self.state.machine.execute(&tenure.over, goal) {
            Ok((diff, answer)) => (diff, Ok(answer)),
            Err(failed) => {
                if planted!(FailureChanges) {
                    self.state.machine = M::default();
                }
                (M::Diff::default(), Err(failed))
            }
        };
        if self.state.machine.lay(&mut tenure.over, diff.clone()).is_err() {
            self.tenure = None;
            return false;
        }
        let (index, term, prev_hash) = (tenure.last.next(), tenure.term, tenure.head);
        let state_hash = self.state.machine.hash(&tenure.over);
        let goal = goal.clone();
        let entry = Entry { index, term, prev_hash, tx_id, goal, diff, result, state_hash };
        let logged = log::Entry { term, payload: Payload::Value(entry.clone()) };
        let Some(head) = link(prev_hash, index, &logged) else {
            self.tenure = None;
            return false;
        };
        (tenure.last, tenure.head) = (index, head);
        tenure.flight.insert(tx_id);
        self.log(log::Input::Propose(entry));
        self.state.done(tx_id).is_some() || self.tenure.is_some()
    }

    /// Removes a decided transaction from the set in flight.
    pub(super) fn land(&mut self, tx_id: TxId) {
        if let Some(tenure) = &mut self.tenure {
            tenure.flight.remove(&tx_id);
        }
    }
}
