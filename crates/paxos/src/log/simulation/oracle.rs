//! The oracle: it records the actions of all nodes and checks that they are consistent.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use holdoff_sim::kernel::World;

use super::machine::{Machine, State, name};
use crate::log::{Entry, EntryPayload, LogId, Message, Node, Output, Record, Snapshot, Term};
use crate::{Configuration, NodeId, Slot, Tally};

/// The maximum time from healing to the next decision: a few elections.
const MAX_RECOVERY_US: u64 = 4_000_000;

/// The statistics of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RunReport {
    pub(super) decided: u64,
    pub(super) proposed: u64,
    pub(super) rejected: u64,
    pub(super) leaders: u64,
    pub(super) changes: u64,
    pub(super) installed: u64,
    pub(super) unstored: u64,
    pub(super) overtaken: u64,
    pub(super) transferred: u64,
    pub(super) failed_transfers: u64,
    pub(super) lost_for_good: u64,
    /// Runs that begin with at least five voters.
    pub(super) many_voters: u64,
    /// Entries and snapshots that a node has taken from a proof instead of from a leader.
    pub(super) learned: u64,
    pub(super) restored: u64,
    /// The longest time from healing to the next decision.
    pub(super) recovery_us: u64,
}

impl RunReport {
    /// Returns the events that must occur in enough runs.
    pub(super) fn events(&self) -> [(&'static str, u64); 9] {
        [
            ("unstored", self.unstored),
            ("led again", self.leaders.saturating_sub(1)),
            ("voters changed", self.changes),
            ("snapshot installed", self.installed),
            ("leadership transferred", self.transferred),
            ("lost for good", self.lost_for_good),
            ("five or more voters", self.many_voters),
            ("learned", self.learned),
            ("restored", self.restored),
        ]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.decided += other.decided;
        self.proposed += other.proposed;
        self.rejected += other.rejected;
        self.leaders += other.leaders;
        self.changes += other.changes;
        self.installed += other.installed;
        self.unstored += other.unstored;
        self.overtaken += other.overtaken;
        self.transferred += other.transferred;
        self.failed_transfers += other.failed_transfers;
        self.lost_for_good += other.lost_for_good;
        self.many_voters += other.many_voters;
        self.learned += other.learned;
        self.restored += other.restored;
        self.recovery_us = self.recovery_us.max(other.recovery_us);
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Plan {
    /// The number of nodes that vote at first.
    pub(super) voters: u32,
    pub(super) may_change: bool,
    /// Whether nodes learn decided entries from a proof. It can end a deadlock of elections, so that only some runs do.
    pub(super) may_learn: bool,
    /// Whether leaders send entries that they have not stored.
    pub(super) early: bool,
}

impl Plan {
    pub(super) fn first_voters(self) -> Configuration {
        Configuration::new((0..self.voters).map(name)).unwrap()
    }
}

#[derive(Default)]
pub(super) struct Oracle {
    pub(super) ran: RunReport,
    pub(super) plan: Plan,
    pub(super) now_us: u64,
    pub(super) healed_us: Option<u64>,
    /// The time of the first decision after healing.
    recovered_us: Option<u64>,
    values: u64,
    /// The nodes that have ever stored an entry, and the last slot of each node's snapshots.
    stored: BTreeMap<(Slot, Term), BTreeSet<NodeId>>,
    snapshots: BTreeMap<NodeId, Slot>,
    /// The records of each node that are not on its disk, and how many of its entries other nodes have received meanwhile.
    unstored: BTreeMap<NodeId, VecDeque<Record<u64, State>>>,
    overtaken: BTreeMap<NodeId, u64>,
    /// The configuration that decides the next slot.
    voters: Option<Configuration>,
    leaders: BTreeMap<Term, NodeId>,
    history: BTreeMap<Slot, (Term, Entry<u64>)>,
    states: BTreeMap<Slot, State>,
    broken: Option<String>,
}

thread_local! {
    static ORACLE: RefCell<Oracle> = RefCell::default();
}

pub(super) fn digest(state: State, entry: &Entry<u64>) -> State {
    let mut hasher = DefaultHasher::new();
    (state, entry).hash(&mut hasher);
    hasher.finish()
}

impl Oracle {
    pub(super) fn begin(plan: Plan) {
        ORACLE.set(Self { plan, ..Self::default() });
    }

    pub(super) fn with<T>(look: impl FnOnce(&mut Self) -> T) -> T {
        ORACLE.with_borrow_mut(look)
    }

    pub(super) fn new_value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    /// Checks that a term has one leader, and that the leader has all entries decided in earlier terms.
    pub(super) fn leads(&mut self, term: Term, node: &Node<u64, State>) {
        self.ran.leaders += 1;
        if self.leaders.insert(term, term.leader()).is_some() {
            self.fail(format!("{term:?} has two leaders, or one twice"));
        }
        let base = node.store().snapshot().last.slot;
        let mut earlier = self.history.iter().filter(|(slot, (of, _))| **slot > base && *of < term);
        let missing = earlier.find(|(slot, (_, entry))| node.store().entry(**slot) != Some(entry));
        if let Some((slot, _)) = missing {
            self.fail(format!("the leader of {term:?} lacks the decided entry of slot {slot}"));
        }
    }

    /// Notes the records of a step, which are not on disk yet.
    pub(super) fn unstored(&mut self, node: NodeId, records: &[Record<u64, State>]) {
        self.unstored.entry(node).or_default().extend(records.iter().cloned());
    }

    /// Checks an early message. It may overtake only unstored entries of the leader's own term.
    pub(super) fn sent_early(&mut self, node: NodeId, output: &Output<u64, State>) {
        let Output::Send(_, Message::Append(append)) = output else {
            return self.fail(format!("{output:?} is early"));
        };
        let unstored = self.unstored.get(&node).into_iter().flatten();
        let is_term = |record: &&Record<u64, State>| match record {
            Record::Entry { entry, .. } => entry.term != append.term,
            Record::Promised(_) | Record::Accepted { .. } => true,
            Record::Decided(_) | Record::Snapshot(_) => false,
        };
        if let Some(record) = unstored.clone().find(is_term) {
            let overtakes = format!("{append:?} overtakes {record:?}");
            return self.fail(overtakes);
        }
        let entries = unstored.filter(|record| matches!(record, Record::Entry { .. })).count() as u64;
        *self.overtaken.entry(node).or_default() += entries;
    }

    /// Returns whether other nodes have received entries that are not on the node's disk.
    pub(super) fn is_ahead(&self, node: NodeId) -> bool {
        self.overtaken.get(&node).is_some_and(|entries| *entries > 0)
    }

    /// Notes that a node has crashed, and has lost this many records.
    pub(super) fn crashed(&mut self, node: NodeId, lost: usize) {
        self.ran.unstored += lost as u64;
        self.ran.overtaken += self.overtaken.remove(&node).unwrap_or_default();
        self.unstored.remove(&node);
    }

    /// Notes that a record is on a node's disk.
    pub(super) fn stored(&mut self, node: NodeId, record: &Record<u64, State>) {
        let unstored = self.unstored.entry(node).or_default();
        let is_next = unstored.pop_front().as_ref() == Some(record);
        if unstored.is_empty() {
            self.overtaken.remove(&node);
        }
        if !is_next {
            self.fail(format!("{record:?} is stored out of order"));
        }
        match record {
            Record::Entry { slot, entry } => {
                self.stored.entry((*slot, entry.term)).or_default().insert(node);
            }
            Record::Snapshot(snapshot) => {
                let last = self.snapshots.entry(node).or_default();
                *last = snapshot.last.slot.max(*last);
            }
            _ => {}
        }
    }

    /// Checks that a majority has the entry on disk, and that all nodes decide the same entry.
    pub(super) fn decided(&mut self, slot: Slot, entry: &Entry<u64>, term: Term) {
        if !self.history.contains_key(&slot) {
            self.is_stored_by_a_majority(slot, entry);
        }
        let known = self.history.entry(slot).or_insert_with(|| {
            self.ran.decided += 1;
            if self.healed_us.is_some() {
                self.recovered_us.get_or_insert(self.now_us);
            }
            self.ran.changes += u64::from(matches!(entry.payload, EntryPayload::Configuration(_)));
            (term, entry.clone())
        });
        if known.1 != *entry {
            let known = known.clone();
            self.fail(format!("slot {slot} is {entry:?} and {known:?}"));
        }
    }

    fn is_stored_by_a_majority(&mut self, slot: Slot, entry: &Entry<u64>) {
        let plan = self.plan;
        let voters = self.voters.get_or_insert_with(|| plan.first_voters());
        let mut tally = Tally::default();
        let stored = self.stored.get(&(slot, entry.term)).into_iter().flatten();
        let snapshots = self.snapshots.iter().filter(|(_, last)| **last >= slot).map(|(node, _)| node);
        stored.chain(snapshots).for_each(|node| tally.count(*node, voters));
        let is_stored = tally.is_quorum(voters);
        if let EntryPayload::Configuration(after) = &entry.payload {
            *voters = after.clone();
        }
        if !is_stored {
            self.fail(format!("slot {slot} is decided and not on the disks of a majority"));
        }
    }

    /// Returns a part of the decided history after a slot, as a node with a proof would send it.
    pub(super) fn entries_after(&self, slot: Slot, limit: usize) -> Vec<Entry<u64>> {
        let after = (std::ops::Bound::Excluded(slot), std::ops::Bound::Unbounded);
        self.history.range(after).take(limit).map(|(_, (_, entry))| entry.clone()).collect()
    }

    /// Returns a snapshot of the decided history up to a slot.
    pub(super) fn snapshot_at(&self, slot: Slot) -> Option<Snapshot<State>> {
        let (last, state) = (self.history.get(&slot)?, *self.states.get(&slot)?);
        let change = |(slot, (_, entry)): (&Slot, &(Term, Entry<u64>))| match &entry.payload {
            EntryPayload::Configuration(voters) => Some((slot.next(), voters.clone())),
            _ => None,
        };
        let first = || (Slot(1), self.plan.first_voters());
        let (start, configuration) = self.history.range(..=slot).rev().find_map(change).unwrap_or_else(first);
        Some(Snapshot { last: LogId { slot, term: last.1.term }, start, configuration, state })
    }

    /// Returns the last decided slot.
    pub(super) fn last_decided(&self) -> Slot {
        self.history.keys().last().copied().unwrap_or_default()
    }

    pub(super) fn check_state(&mut self, (slot, state): (Slot, State)) {
        if *self.states.entry(slot).or_insert(state) != state {
            self.fail(format!("two states after slot {slot}"));
        }
    }

    pub(super) fn fail(&mut self, broken: String) {
        self.broken.get_or_insert(broken);
    }

    /// Checks that a leader serves after healing and has applied the last decided slot, that all voters have reached
    /// its state, that no value is decided twice, and that at least 100 values are decided.
    pub(super) fn end(world: &World<Machine>) -> Result<RunReport, String> {
        let oracle = ORACLE.take();
        if let Some(broken) = oracle.broken {
            return Err(broken);
        }
        let machines = || (0..world.nodes()).filter_map(|node| Some((name(node), world.node(node)?)));
        let nodes =
            || machines().filter_map(|(name, it)| Some((name, it.core()?.node(), it.host()?.applied)));
        let Some((leader, leading, applied)) = nodes().find(|(_, node, _)| node.is_ready()) else {
            return Err("no node leads after healing".to_owned());
        };
        for (voter, _, theirs) in nodes() {
            if leading.store().configuration().contains(voter) && theirs != applied {
                return Err(format!("{voter:?} is at {theirs:?}, its leader {leader:?} at {applied:?}"));
            }
        }
        let last = oracle.history.keys().last().copied().unwrap_or_default();
        let mut values: Vec<_> = oracle
            .history
            .values()
            .filter_map(|(_, entry)| match entry.payload {
                EntryPayload::Value(value) => Some(value),
                _ => None,
            })
            .collect();
        let decided = values.len();
        values.sort_unstable();
        values.dedup();
        if values.len() != decided {
            return Err("a value is decided twice".to_owned());
        }
        if applied.0 != last || decided < 100 {
            return Err(format!("{decided} values are decided, the leader is at {} of {last}", applied.0));
        }
        let recovery_us =
            oracle.recovered_us.zip(oracle.healed_us).map(|(after, before)| after.saturating_sub(before));
        match recovery_us {
            Some(recovery_us) if recovery_us <= MAX_RECOVERY_US => {
                Ok(RunReport { recovery_us, ..oracle.ran })
            }
            _ => Err(format!("the first decision after healing came after {recovery_us:?} µs")),
        }
    }
}
