//! The oracle: it passes the actions of all nodes to the properties, counts events, and keeps the violations.

use std::cell::RefCell;

use holdoff_driver::StepOf;
use holdoff_sim::kernel::World;

use super::machine::{Machine, State, WatchedNode, name};
use super::properties::{Agreement, AtMostOnce, Durability, Leadership, Recovery, Violation, WriteAhead};
use crate::log::{Entry, EntryPayload, Node, Record, Term};
use crate::{Configuration, NodeId, Slot};

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
    /// Stalls of disks.
    pub(super) stalled: u64,
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
    pub(super) fn events(&self) -> [(&'static str, u64); 10] {
        [
            ("unstored", self.unstored),
            ("led again", self.leaders.saturating_sub(1)),
            ("voters changed", self.changes),
            ("snapshot installed", self.installed),
            ("leadership transferred", self.transferred),
            ("lost for good", self.lost_for_good),
            ("stalled disk", self.stalled),
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
        self.stalled += other.stalled;
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
    values: u64,
    leadership: Leadership,
    pub(super) write_ahead: WriteAhead,
    durability: Durability,
    pub(super) agreement: Agreement,
    at_most_once: AtMostOnce,
    pub(super) recovery: Recovery,
    /// The violations, in the order of the checks. The run reports the first.
    violations: Vec<Violation>,
}

thread_local! {
    static ORACLE: RefCell<Oracle> = RefCell::default();
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

    /// Checks a node that begins to lead.
    pub(super) fn leads(&mut self, term: Term, node: &Node<u64, State>) {
        self.ran.leaders += 1;
        self.violations.extend(self.leadership.leads(term, node, &self.agreement).err());
    }

    /// Checks the outputs of a step that leave before its records are on disk.
    pub(super) fn stepped(&mut self, node: NodeId, step: &StepOf<WatchedNode>) {
        self.write_ahead.unstored(node, step.records());
        for output in step.outputs_at_once() {
            self.violations.extend(self.write_ahead.sent_at_once(node, output).err());
        }
    }

    /// Checks a record that is on a node's disk.
    pub(super) fn stored(&mut self, node: NodeId, record: &Record<u64, State>) {
        self.violations.extend(self.write_ahead.stored(node, record).err());
        self.durability.stored(node, record);
    }

    /// Notes that a node has crashed, and has lost this many records.
    pub(super) fn crashed(&mut self, node: NodeId, lost: usize) {
        self.ran.unstored += lost as u64;
        self.ran.overtaken += self.write_ahead.crashed(node);
    }

    /// Checks the entry that a node decides in a slot. The node has promised this term.
    pub(super) fn decided(&mut self, node: NodeId, term: Term, slot: Slot, entry: &Entry<u64>) {
        if self.agreement.entry(slot).is_none() {
            self.violations.extend(self.durability.decided(slot, entry, self.plan).err());
            self.violations.extend(self.at_most_once.decided(slot, entry).err());
            self.recovery.decided(self.now_us);
            self.ran.decided += 1;
            self.ran.changes += u64::from(matches!(entry.payload, EntryPayload::Configuration(_)));
        }
        self.violations.extend(self.agreement.decided((node, term), slot, entry).err());
    }

    /// Checks the state of a node after a slot.
    pub(super) fn reached(&mut self, state: (Slot, State)) {
        self.violations.extend(self.agreement.reached(state).err());
    }

    /// Returns the first violation, or checks the end of the run.
    pub(super) fn end(world: &World<Machine>) -> Result<RunReport, Violation> {
        let oracle = ORACLE.take();
        if let Some(violation) = oracle.violations.into_iter().next() {
            return Err(violation);
        }
        let (values, last) = (oracle.at_most_once.values(), oracle.agreement.last_decided());
        let recovery_us = oracle.recovery.check(world, values, last)?;
        Ok(RunReport { recovery_us, ..oracle.ran })
    }
}
