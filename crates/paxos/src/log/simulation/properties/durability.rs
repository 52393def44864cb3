//! Durability: a decided entry is on the disks of a majority of its voters.

use std::collections::{BTreeMap, BTreeSet};

use super::{Checked, Violation};
use crate::log::simulation::machine::State;
use crate::log::simulation::oracle::Plan;
use crate::log::{Entry, EntryPayload, Record, Term};
use crate::{Configuration, NodeId, Slot, Tally};

#[derive(Default)]
pub(crate) struct Durability {
    /// The nodes that have ever stored an entry, and the last slot of each node's snapshots.
    stored: BTreeMap<(Slot, Term), BTreeSet<NodeId>>,
    snapshots: BTreeMap<NodeId, Slot>,
    /// The configuration that decides the next slot.
    voters: Option<Configuration>,
}

impl Durability {
    /// Notes that a record is on a node's disk.
    pub(crate) fn stored(&mut self, node: NodeId, record: &Record<u64, State>) {
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

    /// Checks the next entry of the history, when the first node decides it.
    pub(crate) fn decided(&mut self, slot: Slot, entry: &Entry<u64>, plan: Plan) -> Checked {
        let voters = self.voters.get_or_insert_with(|| plan.first_voters());
        let mut tally = Tally::default();
        let stored = self.stored.get(&(slot, entry.term)).into_iter().flatten();
        let snapshots = self.snapshots.iter().filter(|(_, last)| **last >= slot).map(|(node, _)| node);
        stored.chain(snapshots).for_each(|node| tally.count(*node, voters));
        let is_stored = tally.is_quorum(voters);
        if let EntryPayload::Configuration(after) = &entry.payload {
            *voters = after.clone();
        }
        is_stored.then_some(()).ok_or(Violation::Durability(slot))
    }
}
