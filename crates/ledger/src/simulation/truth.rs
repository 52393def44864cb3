//! The record of the actions of all nodes together, and the checks of the invariants.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use holdoff_paxos::log::{self, Payload, Term};
use holdoff_paxos::{Configuration, NodeId, Slot, Tally};
use holdoff_sim::kernel::World;

use super::Counts;
use super::machine::{Machine, name};
use super::notary::Clerk;
use crate::entry::link;
use crate::machine::{KeyValue, Machine as _, Overlay, StateHash, Values};
use crate::{Hash, How, Ledger, Logged, NotChanged, Outcome, ReadId, Record, TxId};

/// One index of the history, as the first node that reached it has it.
struct Place {
    entry: Logged<KeyValue>,
    hash: Hash,
    state: StateHash,
    voters: Configuration,
}

/// The parameters of a run.
#[derive(Clone, Copy, Default)]
pub(super) struct Plan {
    pub(super) voters_change: bool,
    pub(super) a_disk_is_lost: bool,
    /// Leaders send entries that they have not stored yet.
    pub(super) early: bool,
}

#[derive(Default)]
pub(super) struct Truth {
    counts: Counts,
    pub(super) plan: Plan,
    pub(super) is_healed: bool,
    /// The node that has lost its disk.
    pub(super) wiped: Option<NodeId>,
    leaders: BTreeMap<Term, NodeId>,
    /// The hash of every entry that a node wrote, by index and term.
    written: BTreeMap<(Slot, Term), Hash>,
    /// The nodes that have ever stored that entry, and the last index of each node's snapshot.
    stored: BTreeMap<(Slot, Term), BTreeSet<NodeId>>,
    snapshots: BTreeMap<NodeId, Slot>,
    history: Vec<Place>,
    replayed: KeyValue,
    indices: BTreeMap<TxId, Slot>,
    seen: BTreeMap<NodeId, (Slot, Hash)>,
    txs: u128,
    /// The transactions that ended as `Unknown`, and those that ended as `NoQuorum`.
    unknown: BTreeSet<TxId>,
    never: BTreeSet<TxId>,
    acknowledged: Slot,
    /// Each read, and the highest index acknowledged before it.
    reads: Vec<(How, Slot)>,
    healed_at: Slot,
    broken: Option<String>,
}

thread_local! {
    static TRUTH: RefCell<Truth> = RefCell::default();
}

impl Truth {
    pub(super) fn begin(plan: Plan) {
        TRUTH.set(Self { plan, ..Self::default() });
    }

    pub(super) fn with<T>(look: impl FnOnce(&mut Self) -> T) -> T {
        TRUTH.with_borrow_mut(look)
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

    pub(super) fn new_read(&mut self, how: How) -> ReadId {
        self.reads.push((how, self.acknowledged));
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

    fn place(&self, slot: Slot) -> Option<&Place> {
        self.history.get(usize::try_from(slot.0.checked_sub(1)?).ok()?)
    }

    pub(super) fn breaks(&mut self, broken: String) {
        self.broken.get_or_insert(broken);
    }

    /// Checks a written record: equal index and term mean an equal entry.
    pub(super) fn logged(&mut self, record: &Record<KeyValue>) {
        let log::Record::Entry { slot, entry } = record else { return };
        let hash = link(Hash::default(), *slot, entry).unwrap();
        if *self.written.entry((*slot, entry.term)).or_insert(hash) != hash {
            self.breaks(format!("two entries at {slot} in {:?}", entry.term));
        }
    }

    /// Records that a record is on disk.
    pub(super) fn stored(&mut self, node: NodeId, record: &Record<KeyValue>) {
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
    pub(super) fn look_at(&mut self, node: NodeId, ledger: &Ledger<KeyValue, Clerk>) {
        if let Some(term) = ledger.leads() {
            let first = self.leaders.len();
            if *self.leaders.entry(term).or_insert(node) != node {
                self.breaks(format!("two lead in {term:?}"));
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
            self.breaks(format!("{node:?} is at {} without what comes before", state.index));
            return;
        }
        for entry in ledger.history.iter().skip(kept - usize::try_from(behind).unwrap()) {
            self.go_on(node, entry);
        }
        let found = state.machine.hash(&Overlay::default());
        match self.place(state.index) {
            Some(place) if place.hash != state.hash => {
                self.breaks(format!("{node:?} has another history at {}", state.index));
            }
            Some(place) if place.state != found => {
                self.breaks(format!("{node:?} has another state at {}", state.index));
            }
            _ => {}
        }
    }

    /// Extends the history by an entry, and replays it.
    fn go_on(&mut self, first: NodeId, entry: &Logged<KeyValue>) {
        let slot = self.head().next();
        let last = self.history.last();
        let before = last.map(|place| place.hash).unwrap_or_default();
        let three = || Configuration::new((0..3).map(|node| name(node, 0))).unwrap();
        let voters = last.map_or_else(three, |place| match &place.entry.payload {
            Payload::Configuration(after) => after.clone(),
            _ => place.voters.clone(),
        });
        if !self.is_with_majority(slot, entry.term, &voters, Some(first)) {
            self.breaks(format!("{first:?} takes {slot} for decided, and no majority has it"));
        }
        match &entry.payload {
            Payload::Value(value) => {
                if value.index != slot || value.prev_hash != before {
                    self.breaks(format!("the entry at {slot} is for {}", value.index));
                }
                if self.indices.insert(value.tx_id, slot).is_some() {
                    self.breaks(format!("{:?} is committed twice", value.tx_id));
                }
                if value.result.is_err() && !value.diff.is_empty() {
                    self.breaks(format!("the goal at {slot} failed, and changes something"));
                }
                if let Err(misfit) = self.replayed.apply(&value.diff) {
                    self.breaks(format!("the diff at {slot} does not fit: {misfit}"));
                }
                self.count(if value.result.is_ok() { "committed" } else { "failed" }, 1);
            }
            Payload::Configuration(_) => self.count("voters changed", 1),
            Payload::Barrier => {}
        }
        let hash = link(before, slot, entry).unwrap();
        let state = self.replayed.hash(&Overlay::default());
        self.history.push(Place { entry: entry.clone(), hash, state, voters });
    }

    /// Checks the outcome that a caller receives for a transaction.
    pub(super) fn ended(&mut self, tx_id: TxId, outcome: &Outcome<Values>) {
        match outcome {
            Outcome::Committed { index, result } => self.acknowledge(tx_id, *index, Some(result)),
            Outcome::Failed { index, .. } => self.acknowledge(tx_id, *index, None),
            Outcome::NoQuorum => {
                self.count("no quorum", 1);
                if !self.unknown.contains(&tx_id) {
                    self.never.insert(tx_id);
                }
            }
            Outcome::Unknown => {
                self.count("unknown", 1);
                self.unknown.insert(tx_id);
            }
            Outcome::TooMany => self.count("too many", 1),
        }
    }

    fn acknowledge(&mut self, tx_id: TxId, index: Slot, result: Option<&Values>) {
        self.count("acknowledged", 1);
        self.acknowledged = self.acknowledged.max(index);
        let Some(place) = self.place(index) else {
            return self.breaks(format!("{tx_id:?} is acknowledged at {index}, where nothing is"));
        };
        let Payload::Value(value) = &place.entry.payload else {
            return self.breaks(format!("{tx_id:?} is acknowledged at {index}, where another thing is"));
        };
        let fits = value.tx_id == tx_id && value.result.as_ref().ok() == result;
        let by_quorum = self.is_with_majority(index, value.term, &place.voters, None);
        if !fits {
            self.breaks(format!("{tx_id:?} is acknowledged at {index}, where another is"));
        }
        if !by_quorum {
            self.breaks(format!("{tx_id:?} is acknowledged at {index} without a majority"));
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
        let Some((how, before)) = self.reads.get(usize::try_from(read.0).unwrap()).copied() else { return };
        let name = match how {
            How::Local => return,
            How::Quorum => "read by quorum",
            How::Lease => "read by lease",
        };
        self.count(name, 1);
        if index < before {
            self.breaks(format!("a {name} is of {index}, and {before} was acknowledged before"));
        }
    }

    /// Checks that an acknowledged configuration change is in the history.
    pub(super) fn changed(&mut self, to: &Configuration, slot: Slot) {
        self.count("change acknowledged", 1);
        let is_there =
            self.place(slot).is_some_and(|place| place.entry.payload == Payload::Configuration(to.clone()));
        if !is_there {
            self.breaks(format!("{to:?} vote after {slot}, it is said, where another thing is"));
        }
    }

    /// Counts a failed configuration change by its reason.
    pub(super) fn not_changed(&mut self, why: NotChanged) {
        let name = match why {
            NotChanged::Overtaken => "change overtaken",
            NotChanged::Unknown => "change unknown",
            _ => "change refused",
        };
        self.count(name, 1);
    }

    /// Checks that all nodes have reached the same state, and that entries were decided after healing.
    pub(super) fn end(world: &World<Machine>) -> Result<Counts, String> {
        let truth = TRUTH.take();
        if let Some(broken) = truth.broken {
            return Err(broken);
        }
        if let Some(tx_id) = truth.never.iter().find(|tx_id| truth.indices.contains_key(tx_id)) {
            return Err(format!("{tx_id:?} is committed, and was said never to be"));
        }
        let ledgers = || (0..world.nodes()).filter_map(|node| Some(&world.node(node)?.ledger));
        let Some(leader) = ledgers().find(|ledger| ledger.is_ready()) else {
            let show = |ledger: &Ledger<KeyValue, Clerk>| {
                let store = ledger.store();
                format!(
                    "{:?}: leader {:?}, voters {:?}, index {}, log to {} decided {}, promised {:?}, accepted {:?}",
                    ledger.me,
                    ledger.leader(),
                    ledger.state().voters(),
                    ledger.state().index(),
                    store.last(),
                    store.decided(),
                    store.promised(),
                    store.accepted(),
                )
            };
            let shown: Vec<_> = ledgers().map(show).collect();
            return Err(format!("nobody leads after healing:\n{}", shown.join("\n")));
        };
        let head = leader.state();
        if head.index != truth.head() || head.index.0 < truth.healed_at.0 + 20 {
            return Err(format!(
                "the leader is at {} of {}, healed at {}",
                head.index,
                truth.head(),
                truth.healed_at
            ));
        }
        for ledger in ledgers() {
            let state = ledger.state();
            if (state.index, state.hash) != (head.index, head.hash) {
                return Err(format!("{:?} is at {}, its leader at {}", ledger.me, state.index, head.index));
            }
        }
        Ok(truth.counts)
    }
}
