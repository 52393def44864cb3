//! The record of the actions of all nodes together, and the checks of the invariants.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use holdoff_paxos::log::{self, EntryPayload, Term};
use holdoff_paxos::{Configuration, NodeId, Slot, Tally};
use holdoff_sim::kernel::World;

use super::EventCounts;
use super::node::TestNotary;
use super::node::{SimulatedNode, name};
use crate::entry::link;
use crate::machine::{KeyValue, Overlay, StateHash, StateMachine as _, Values};
use crate::{
    ChangeError, Consistency, Hash, Ledger, LogEntry, Message, Outcome, Output, OutputOf, ReadId, Record,
    TxId, TxKey,
};

/// One index of the history, as the first node that reached it has it.
struct HistoryRow {
    entry: LogEntry<KeyValue>,
    hash: Hash,
    state: StateHash,
    voters: Configuration,
}

/// The parameters of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RunPlan {
    /// The number of nodes that vote at first.
    pub(super) voters: u32,
    pub(super) voters_change: bool,
    pub(super) a_disk_is_lost: bool,
    /// Leaders send entries that they have not stored yet.
    pub(super) early: bool,
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
    leaders: BTreeMap<Term, NodeId>,
    /// The hash of every entry that a node wrote, by index and term.
    written: BTreeMap<(Slot, Term), Hash>,
    /// The nodes that have ever stored that entry, and the last index of each node's snapshot.
    stored: BTreeMap<(Slot, Term), BTreeSet<NodeId>>,
    snapshots: BTreeMap<NodeId, Slot>,
    /// The number of each node's records that are not on its disk, and the last index that other nodes have received from it
    /// meanwhile.
    unstored: BTreeMap<NodeId, usize>,
    ahead: BTreeMap<NodeId, Slot>,
    submissions: u64,
    history: Vec<HistoryRow>,
    replayed: KeyValue,
    indices: BTreeMap<TxId, Slot>,
    seen: BTreeMap<NodeId, (Slot, Hash)>,
    txs: u128,
    /// The latest birth with which each transaction was submitted, at all nodes and at each node.
    births: BTreeMap<TxId, Slot>,
    births_at: BTreeMap<(NodeId, TxId), Slot>,
    /// The transactions that clients submit again later.
    later: Vec<TxKey>,
    /// The transactions that ended as `Unknown`, those that must not be in the history, and the last index of those that
    /// have expired.
    unknown: BTreeSet<TxId>,
    never: BTreeMap<TxId, String>,
    expired: BTreeMap<TxId, Slot>,
    acknowledged: Slot,
    /// Each read, and the highest index acknowledged before it.
    reads: Vec<(Consistency, Slot)>,
    healed_at: Slot,
    failure: Option<String>,
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
        *self.counts.entry(name).or_default() += times;
    }

    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.healed_at = self.head();
    }

    pub(super) fn new_tx(&mut self) -> TxId {
        self.txs += 1;
        TxId(self.txs)
    }

    pub(super) fn submitted(&mut self, node: NodeId, tx: TxKey) {
        let latest = self.births.entry(tx.id).or_default();
        *latest = tx.birth.max(*latest);
        let here = self.births_at.entry((node, tx.id)).or_default();
        *here = tx.birth.max(*here);
    }

    pub(super) fn submit_later(&mut self, tx: TxKey) {
        self.later.push(tx);
    }

    pub(super) fn take_unknown(&mut self) -> Option<TxKey> {
        self.later.pop()
    }

    pub(super) fn new_read(&mut self, consistency: Consistency) -> ReadId {
        self.reads.push((consistency, self.acknowledged));
        ReadId(self.reads.len() as u64 - 1)
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

    fn head(&self) -> Slot {
        Slot(self.history.len() as u64)
    }

    fn row(&self, slot: Slot) -> Option<&HistoryRow> {
        self.history.get(usize::try_from(slot.0.checked_sub(1)?).ok()?)
    }

    pub(super) fn fail(&mut self, failure: String) {
        self.failure.get_or_insert(failure);
    }

    /// Returns the number of the next submission.
    pub(super) fn new_submission(&mut self) -> u64 {
        self.submissions += 1;
        self.submissions
    }

    /// Checks a message that leaves before the records of its step are on disk.
    pub(super) fn sent_early(&mut self, node: NodeId, output: &OutputOf<KeyValue>) {
        match output {
            Output::Send(_, Message::Log(log::Message::Append(append))) => {
                let entries = append.more.len() as u64 + u64::from(append.entry.is_some());
                let last = Slot(append.before.slot.0 + entries);
                let ahead = self.ahead.entry(node).or_default();
                *ahead = last.max(*ahead);
            }
            Output::Send(_, Message::Log(_) | Message::SignatureShare(_) | Message::TermConfirmed(..)) => {
                self.fail(format!("{output:?} does not wait for the disk"));
            }
            _ => {}
        }
    }

    /// Returns true if other nodes have received entries that are not on the node's disk.
    pub(super) fn is_ahead(&self, node: NodeId) -> bool {
        self.ahead.contains_key(&node)
    }

    /// Records that a node has lost these records.
    pub(super) fn crashed(&mut self, node: NodeId, lost: &[Record<KeyValue>]) {
        let ahead = self.ahead.remove(&node);
        let was_sent = |record: &Record<KeyValue>| match record {
            log::Record::Entry { slot, .. } => Some(*slot) <= ahead,
            _ => false,
        };
        self.count("ahead of its disk", u64::from(lost.iter().any(was_sent)));
        self.unstored.remove(&node);
    }

    /// Checks a record that is not on disk yet: equal index and term mean an equal entry.
    pub(super) fn logged(&mut self, node: NodeId, record: &Record<KeyValue>) {
        *self.unstored.entry(node).or_default() += 1;
        let log::Record::Entry { slot, entry } = record else { return };
        let hash = link(Hash::default(), *slot, entry).unwrap();
        if *self.written.entry((*slot, entry.term)).or_insert(hash) != hash {
            self.fail(format!("two entries at {slot} in {:?}", entry.term));
        }
    }

    /// Records that a record is on disk.
    pub(super) fn stored(&mut self, node: NodeId, record: &Record<KeyValue>) {
        let unstored = self.unstored.entry(node).or_default();
        *unstored = unstored.saturating_sub(1);
        if *unstored == 0 {
            self.ahead.remove(&node);
        }
        match record {
            log::Record::Entry { slot, entry } => {
                self.stored.entry((*slot, entry.term)).or_default().insert(node);
            }
            log::Record::Snapshot(snapshot) => {
                let last = self.snapshots.entry(node).or_default();
                *last = snapshot.last.slot.max(*last);
            }
            _ => {}
        }
    }

    /// Checks the state of a node.
    pub(super) fn look_at(&mut self, node: NodeId, ledger: &Ledger<KeyValue, TestNotary>) {
        if let Some(term) = ledger.leads() {
            let first = self.leaders.len();
            if *self.leaders.entry(term).or_insert(node) != node {
                self.fail(format!("two leaders in {term:?}"));
            }
            let again = self.leaders.len() > first && first > 0;
            self.count("led again", u64::from(again));
        }
        let state = ledger.state();
        let now = (state.index, state.hash);
        if self.seen.insert(node, now) == Some(now) || state.index == Slot(0) {
            return;
        }
        let behind = state.index.0.saturating_sub(self.history.len() as u64);
        let kept = ledger.history.len();
        if behind > kept as u64 {
            self.fail(format!("{node:?} is at {} without the entries before", state.index));
            return;
        }
        for entry in ledger.history.iter().skip(kept - usize::try_from(behind).unwrap()) {
            self.extend(node, entry);
        }
        let found = state.machine.hash(&Overlay::default());
        match self.row(state.index) {
            Some(row) if row.hash != state.hash => {
                self.fail(format!("{node:?} has another history at {}", state.index));
            }
            Some(row) if row.state != found => {
                self.fail(format!("{node:?} has another state at {}", state.index));
            }
            _ => {}
        }
    }

    /// Extends the history by an entry, and replays it.
    fn extend(&mut self, first: NodeId, entry: &LogEntry<KeyValue>) {
        let slot = self.head().next();
        let last = self.history.last();
        let before = last.map(|row| row.hash).unwrap_or_default();
        let first_voters = || self.plan.first_voters();
        let voters = last.map_or_else(first_voters, |row| match &row.entry.payload {
            EntryPayload::Configuration(after) => after.clone(),
            _ => row.voters.clone(),
        });
        if !self.is_with_majority(slot, entry.term, &voters, Some(first)) {
            self.fail(format!("{first:?} takes {slot} for decided, and no majority has it"));
        }
        match &entry.payload {
            EntryPayload::Value(value) => {
                if value.index != slot || value.prev_hash != before {
                    self.fail(format!("the entry at {slot} is for {}", value.index));
                }
                if self.indices.insert(value.tx_id, slot).is_some() {
                    self.fail(format!("{:?} is committed twice", value.tx_id));
                }
                if value.result.is_err() && !value.diff.is_empty() {
                    self.fail(format!("the goal at {slot} failed, and changes something"));
                }
                if let Err(misfit) = self.replayed.apply(&value.diff) {
                    self.fail(format!("the diff at {slot} does not fit: {misfit}"));
                }
                self.count(if value.result.is_ok() { "committed" } else { "failed" }, 1);
            }
            EntryPayload::Configuration(_) => self.count("voters changed", 1),
            EntryPayload::NoOp => {}
        }
        let hash = link(before, slot, entry).unwrap();
        let state = self.replayed.hash(&Overlay::default());
        self.history.push(HistoryRow { entry: entry.clone(), hash, state, voters });
    }

    /// Checks the outcome that a caller receives for a transaction. Returns the birth of the submission.
    pub(super) fn ended(&mut self, node: NodeId, tx_id: TxId, outcome: &Outcome<Values>) -> Slot {
        let birth = self.births_at.get(&(node, tx_id)).copied().unwrap_or_default();
        // Another submission may have a later birth, and may still take effect.
        let is_latest = self.births.get(&tx_id) == Some(&birth);
        match outcome {
            Outcome::Committed { index, result } => self.acknowledge(tx_id, *index, Some(result)),
            Outcome::Failed { index, .. } => self.acknowledge(tx_id, *index, None),
            Outcome::NoQuorum => {
                self.count("no quorum", 1);
                if !self.unknown.contains(&tx_id) {
                    self.never.insert(tx_id, format!("NoQuorum at {node:?}"));
                }
            }
            Outcome::Unknown { absent_through } => {
                self.count("unknown", 1);
                self.unknown.insert(tx_id);
                if self.indices.get(&tx_id).is_some_and(|index| index <= absent_through) {
                    self.fail(format!("{tx_id:?} is in the history up to {absent_through}"));
                }
            }
            Outcome::Overtaken { absent_through } => {
                self.count("overtaken", 1);
                if self.indices.get(&tx_id).is_some_and(|index| index <= absent_through) {
                    self.fail(format!("{tx_id:?} is in the history up to {absent_through}"));
                }
                if is_latest {
                    self.never.insert(tx_id, format!("Overtaken at {node:?}, born at {birth}"));
                }
            }
            Outcome::Expired { through } => {
                self.count("expired", 1);
                if is_latest {
                    self.expired.insert(tx_id, *through);
                }
            }
            Outcome::TooMany => self.count("too many", 1),
        }
        birth
    }

    fn acknowledge(&mut self, tx_id: TxId, index: Slot, result: Option<&Values>) {
        self.count("acknowledged", 1);
        self.acknowledged = self.acknowledged.max(index);
        let Some(row) = self.row(index) else {
            return self.fail(format!("{tx_id:?} is acknowledged at {index}, which has no entry"));
        };
        let EntryPayload::Value(value) = &row.entry.payload else {
            return self.fail(format!("{tx_id:?} is acknowledged at {index}, which has no transaction"));
        };
        let fits = value.tx_id == tx_id && value.result.as_ref().ok() == result;
        let by_quorum = self.is_with_majority(index, value.term, &row.voters, None);
        if !fits {
            self.fail(format!("{tx_id:?} is acknowledged at {index}, which has another transaction"));
        }
        if !by_quorum {
            self.fail(format!("{tx_id:?} is acknowledged at {index} without a majority"));
        }
    }

    /// Returns true if a majority of these voters has the entry on disk. One further node (`more`) may have it in
    /// memory.
    fn is_with_majority(
        &self,
        index: Slot,
        term: Term,
        voters: &Configuration,
        more: Option<NodeId>,
    ) -> bool {
        let mut tally = Tally::default();
        let stored = self.stored.get(&(index, term)).into_iter().flatten();
        let snapshots = self.snapshots.iter().filter(|(_, last)| **last >= index).map(|(node, _)| node);
        stored.chain(snapshots).chain(&more).for_each(|node| tally.count(*node, voters));
        tally.is_quorum(voters)
    }

    pub(super) fn answered(&mut self, read: ReadId, index: Slot) {
        let Some((consistency, before)) = self.reads.get(usize::try_from(read.0).unwrap()).copied() else {
            return;
        };
        let name = match consistency {
            Consistency::Local => return,
            Consistency::Quorum => "read by quorum",
            Consistency::Lease => "read by lease",
        };
        self.count(name, 1);
        if index < before {
            self.fail(format!("a {name} includes {index}, but {before} was acknowledged before it"));
        }
    }

    /// Checks that an acknowledged configuration change is in the history.
    pub(super) fn changed(&mut self, to: &Configuration, slot: Slot) {
        self.count("change acknowledged", 1);
        let is_there =
            self.row(slot).is_some_and(|row| row.entry.payload == EntryPayload::Configuration(to.clone()));
        if !is_there {
            self.fail(format!("the change to {to:?} is acknowledged at {slot}, which has another entry"));
        }
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

    /// Checks that all nodes have reached the same state, and that entries were decided after healing.
    pub(super) fn end(world: &World<SimulatedNode>) -> Result<EventCounts, String> {
        let oracle = ORACLE.take();
        if let Some(failure) = oracle.failure {
            return Err(failure);
        }
        let committed = |(tx_id, why)| Some((tx_id, why, oracle.indices.get(tx_id)?));
        if let Some((tx_id, why, index)) = oracle.never.iter().find_map(committed) {
            return Err(format!("{tx_id:?} is committed at {index}, and was reported as {why}"));
        }
        let is_late = |(tx_id, through): &(&TxId, &Slot)| oracle.indices.get(tx_id) > Some(*through);
        if let Some((tx_id, through)) = oracle.expired.iter().find(is_late) {
            return Err(format!("{tx_id:?} is committed after {through}, where it had expired"));
        }
        let ledgers = || (0..world.nodes()).filter_map(|node| Some(&***world.node(node)?.core()?));
        let Some(leader) = ledgers().find(|ledger| ledger.is_ready()) else {
            let shown: Vec<_> = ledgers().map(show).collect();
            return Err(format!("no leader after healing:\n{}", shown.join("\n")));
        };
        let head = leader.state();
        if head.index != oracle.head() || head.index.0 < oracle.healed_at.0 + 20 {
            return Err(format!(
                "the leader is at {} of {}, healed at {}",
                head.index,
                oracle.head(),
                oracle.healed_at
            ));
        }
        for ledger in ledgers() {
            let state = ledger.state();
            if (state.index, state.hash) != (head.index, head.hash) {
                let shown: Vec<_> = ledgers().map(show).collect();
                let [me, leader] = [ledger.me, leader.me];
                return Err(format!("{me:?} is not where its leader {leader:?} is:\n{}", shown.join("\n")));
            }
        }
        Ok(oracle.counts)
    }
}

fn show(ledger: &Ledger<KeyValue, TestNotary>) -> String {
    let store = ledger.store();
    format!(
        "{:?}: leader {:?}, voters {:?}, index {}, log to {} decided {}, promised {:?}, accepted {:?}, {:?}",
        ledger.me,
        ledger.leader(),
        ledger.state().voters(),
        ledger.state().index(),
        store.last(),
        store.decided(),
        store.promised(),
        store.accepted(),
        ledger.counts(),
    )
}
