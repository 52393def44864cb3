//! The oracle: it passes the actions of all nodes to the properties, counts events, and keeps the violations.

use std::cell::RefCell;
use std::collections::BTreeMap;

use holdoff_paxos::log::EntryPayload;
use holdoff_paxos::{Configuration, NodeId, Slot};
use holdoff_sim::kernel::World;

use super::EventCounts;
use super::node::{SimulatedNode, TestNotary, name};
use super::properties::{
    Agreement, AtMostOnce, Commit, Durability, History, Outcomes, Reads, Recovery, Terms, Violation,
    WriteAhead,
};
use crate::machine::{KeyValue, Values};
use crate::{ChangeError, Consistency, Ledger, LedgerStep, LogEntry, Outcome, ReadId, Record, TxId, TxKey};

/// The parameters of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RunPlan {
    /// The number of nodes that vote at first.
    pub(super) voters: u32,
    pub(super) voters_change: bool,
    pub(super) a_disk_is_lost: bool,
    /// Leaders send entries that they have not stored yet.
    pub(super) early: bool,
    /// The maximum size of the kept entries.
    pub(super) kept_bytes: usize,
}

impl RunPlan {
    pub(super) fn first_voters(self) -> Configuration {
        Configuration::new((0..self.voters).map(|node| name(node, 0))).unwrap()
    }
}

#[derive(Default)]
pub(super) struct Oracle {
    counts: EventCounts,
    pub(super) plan: RunPlan,
    pub(super) is_healed: bool,
    /// The node that has lost its disk.
    pub(super) wiped: Option<NodeId>,
    submissions: u64,
    txs: u128,
    /// The transactions that clients submit again later.
    pub(super) later: Vec<TxKey>,
    /// The nodes that receive a snapshot, and its sources.
    receiving: BTreeMap<NodeId, NodeId>,
    terms: Terms,
    pub(super) write_ahead: WriteAhead,
    durability: Durability,
    history: History,
    agreement: Agreement,
    at_most_once: AtMostOnce,
    pub(super) outcomes: Outcomes,
    pub(super) reads: Reads,
    recovery: Recovery,
    /// The violations, in the order of the checks. The run reports the first.
    pub(super) violations: Vec<Violation>,
}

thread_local! {
    static ORACLE: RefCell<Oracle> = RefCell::default();
}

impl Oracle {
    pub(super) fn begin(plan: RunPlan) {
        ORACLE.set(Self { plan, ..Self::default() });
    }

    pub(super) fn with<T>(look: impl FnOnce(&mut Self) -> T) -> T {
        ORACLE.with_borrow_mut(look)
    }

    pub(super) fn count(&mut self, name: &'static str, times: u64) {
        if times > 0 {
            *self.counts.entry(name).or_default() += times;
        }
    }

    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.recovery.healed(self.history.head());
    }

    pub(super) fn new_tx(&mut self) -> TxId {
        self.txs += 1;
        TxId(self.txs)
    }

    /// Returns the number of the next submission.
    pub(super) fn new_submission(&mut self) -> u64 {
        self.submissions += 1;
        self.submissions
    }

    /// Returns true in the fault phase of a run with configuration changes, as long as no lost disk must be replaced.
    pub(super) fn may_change(&self) -> bool {
        self.plan.voters_change && !self.is_healed && self.wiped.is_none()
    }

    /// At most one disk is lost: with two, a majority could be gone.
    pub(super) fn may_wipe(&mut self, node: NodeId) -> bool {
        let wipes = self.plan.a_disk_is_lost && self.wiped.is_none() && node.0 >> 32 == 0;
        if wipes {
            self.wiped = Some(node);
            self.count("wiped disk", 1);
        }
        wipes
    }

    /// Checks the records and the outputs of a step.
    pub(super) fn stepped(&mut self, node: NodeId, step: &LedgerStep<KeyValue>) {
        self.write_ahead.unstored(node, step.records().len());
        for record in step.records() {
            self.violations.extend(self.terms.written(record).err());
        }
        for output in step.outputs_at_once() {
            self.violations.extend(self.write_ahead.sent_at_once(node, output).err());
        }
    }

    /// Notes that a record is on a node's disk.
    pub(super) fn stored(&mut self, node: NodeId, record: &Record<KeyValue>) {
        self.write_ahead.stored(node);
        self.durability.stored(node, record);
    }

    pub(super) fn history_head(&self) -> Slot {
        self.history.head()
    }

    /// Notes from which node a node receives a snapshot, if it does.
    pub(super) fn receiving(&mut self, node: NodeId, from: Option<NodeId>) {
        match from {
            Some(from) => drop(self.receiving.insert(node, from)),
            None => drop(self.receiving.remove(&node)),
        }
    }

    /// Returns true if a node sends a snapshot, or receives one.
    pub(super) fn is_in_transfer(&self, node: NodeId, as_source: bool) -> bool {
        if as_source {
            self.receiving.values().any(|source| *source == node)
        } else {
            self.receiving.contains_key(&node)
        }
    }

    /// Notes that a node has lost these records.
    pub(super) fn crashed(&mut self, node: NodeId, lost: &[Record<KeyValue>]) {
        let was_receiving = self.receiving.remove(&node).is_some();
        let was_source = self.receiving.values().any(|source| *source == node);
        self.count("crashed while receiving", u64::from(was_receiving));
        self.count("source crashed", u64::from(was_source));
        self.count("crashed in a transfer", u64::from(was_receiving || was_source));
        let was_ahead = self.write_ahead.crashed(node, lost);
        self.count("ahead of its disk", u64::from(was_ahead));
    }

    /// Checks the state of a node.
    pub(super) fn look_at(&mut self, ledger: &Ledger<KeyValue, TestNotary>) {
        let (node, state) = (ledger.me, ledger.state());
        if let Some(term) = ledger.leads() {
            let before = self.terms.led();
            self.violations.extend(self.terms.leads(term, node).err());
            self.count("led again", u64::from(self.terms.led() > before && before > 0));
        }
        if !self.agreement.is_news(node, state) {
            return;
        }
        match Agreement::new_entries(ledger, &self.history) {
            Ok(entries) => entries.for_each(|entry| self.extend(node, entry)),
            Err(gap) => return self.violations.push(gap),
        }
        self.violations.extend(Agreement::check(node, state, &self.history).err());
    }

    /// Extends the history by an entry that a node has applied as the first one.
    fn extend(&mut self, first: NodeId, entry: &LogEntry<KeyValue>) {
        let (slot, voters) = (self.history.head().next(), self.history.next_voters(self.plan));
        let durable = self.durability.check(slot, entry.term, &voters, Commit::DecidedBy(first));
        self.violations.extend(durable.err());
        self.violations.extend(self.history.extend(entry, voters).err());
        match &entry.payload {
            EntryPayload::Value(value) => {
                self.violations.extend(self.at_most_once.committed(value.tx_id, slot).err());
                self.count(if value.result.is_ok() { "committed" } else { "failed" }, 1);
            }
            EntryPayload::Configuration(_) => self.count("voters changed", 1),
            EntryPayload::NoOp => {}
        }
    }

    /// Checks the outcome that a caller receives for a transaction. Returns the birth of the submission.
    pub(super) fn ended(&mut self, node: NodeId, tx_id: TxId, outcome: &Outcome<Values>) -> Slot {
        match outcome {
            Outcome::Committed { index, result } => self.acknowledged(tx_id, *index, Some(result)),
            Outcome::Failed { index, .. } => self.acknowledged(tx_id, *index, None),
            Outcome::NoQuorum => self.count("no quorum", 1),
            Outcome::Unknown { .. } => self.count("unknown", 1),
            Outcome::Overtaken { .. } => self.count("overtaken", 1),
            Outcome::Expired { .. } => self.count("expired", 1),
            Outcome::TooMany => self.count("too many", 1),
        }
        self.violations.extend(self.outcomes.ended(node, tx_id, outcome, &self.at_most_once).err());
        self.outcomes.birth(node, tx_id)
    }

    fn acknowledged(&mut self, tx_id: TxId, index: Slot, result: Option<&Values>) {
        self.count("acknowledged", 1);
        self.reads.acknowledged(index);
        let checked = Outcomes::acknowledged(tx_id, index, result, &self.history, &self.durability);
        self.violations.extend(checked.err());
    }

    /// Checks the answer of a read.
    pub(super) fn answered(&mut self, read: ReadId, index: Slot) {
        match self.reads.consistency(read) {
            Some(Consistency::Quorum) => self.count("read by quorum", 1),
            Some(Consistency::Lease) => self.count("read by lease", 1),
            Some(Consistency::Local) | None => {}
        }
        self.violations.extend(self.reads.answered(read, index).err());
    }

    /// Checks an acknowledged configuration change.
    pub(super) fn changed(&mut self, to: &Configuration, slot: Slot) {
        self.count("change acknowledged", 1);
        self.violations.extend(Outcomes::changed(to, slot, &self.history).err());
    }

    /// Counts a failed configuration change by its reason.
    pub(super) fn not_changed(&mut self, why: ChangeError) {
        let name = match why {
            ChangeError::Overtaken => "change overtaken",
            ChangeError::Unknown => "change unknown",
            _ => "change refused",
        };
        self.count(name, 1);
    }

    /// Returns the first violation, or checks the end of the run.
    pub(super) fn end(world: &World<SimulatedNode>) -> Result<EventCounts, Violation> {
        let oracle = ORACLE.take();
        if let Some(violation) = oracle.violations.into_iter().next() {
            return Err(violation);
        }
        oracle.outcomes.check(&oracle.at_most_once)?;
        oracle.recovery.check(world, oracle.history.head())?;
        Ok(oracle.counts)
    }
}
