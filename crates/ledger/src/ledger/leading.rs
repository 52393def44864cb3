//! Leading: goals are run over what is decided and what is in flight; what came of them is proposed.

use std::collections::BTreeSet;

use holdoff_paxos::log::{self, Payload, Term};
use holdoff_paxos::{Slot, planted};

use super::{Ledger, Letter};
use crate::certificate::Notary;
use crate::entry::{Entry, Hash, Replicated, TxId, link};
use crate::state::State;

/// What a leader has on top of what is decided. It is gone when it leads no longer: the state never saw it.
pub(super) struct Tenure<M: Replicated> {
    pub(super) term: Term,
    pub(super) over: M::Overlay,
    flight: BTreeSet<TxId>,
    last: Slot,
    head: Hash,
}

impl<M: Replicated> Tenure<M> {
    /// On top of this state, with all that the log has undecided. None if the log does not go on from that state.
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
            // What decides next is being changed: nothing goes on top of that.
            let Payload::Value(value) = &entry.payload else { return None };
            state.machine.lay(&mut tenure.over, value.diff.clone()).ok()?;
            tenure.flight.insert(value.tx_id);
            (tenure.last, tenure.head) = (slot, link(tenure.head, slot, entry)?);
        }
        Some(tenure)
    }
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Begins to serve when it leads and knows all that was decided before; ends when it leads no longer.
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

    /// Somebody else was asked for this. Whoever does not lead passes it on to the one who does, once; if nobody does, it
    /// will be sent again.
    pub(super) fn take_from(&mut self, tx_id: TxId, goal: M::Goal, relayed: bool) {
        self.lead();
        match self.log.leader().filter(|leader| *leader != self.me) {
            Some(leader) if !relayed => self.send(leader, Letter::Submit { tx_id, goal, relayed: true }),
            Some(_) => {}
            None => drop(self.run(tx_id, &goal)),
        }
    }

    /// Runs a goal, unless that was done. Returns whether its entry is in the log.
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

    /// A transaction of this tenure is decided.
    pub(super) fn land(&mut self, tx_id: TxId) {
        if let Some(tenure) = &mut self.tenure {
            tenure.flight.remove(&tx_id);
        }
    }
}
