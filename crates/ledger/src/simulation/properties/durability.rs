//! Durability: a decided entry, and the entry of an acknowledged transaction, is on the disks of a majority of its voters.

use std::collections::{BTreeMap, BTreeSet};

use holdoff_paxos::log::{self, Term};
use holdoff_paxos::{Configuration, NodeId, Slot, Tally};

use super::{Checked, Violation};
use crate::machine::KeyValue;
use crate::{Record, TxId};

/// The nodes that have ever stored an entry, and the last index of each node's snapshot.
#[derive(Default)]
pub(crate) struct Durability {
    stored: BTreeMap<(Slot, Term), BTreeSet<NodeId>>,
    snapshots: BTreeMap<NodeId, Slot>,
}

/// The event that requires an entry to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Commit {
    /// The first node that applies the entry takes it for decided.
    DecidedBy(NodeId),
    Acknowledged(TxId),
}

impl Durability {
    /// Notes that a record is on a node's disk.
    pub(crate) fn stored(&mut self, node: NodeId, record: &Record<KeyValue>) {
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

    /// Checks that a majority of the voters has an entry on disk. The node that decides it may have it in memory.
    pub(crate) fn check(&self, slot: Slot, term: Term, voters: &Configuration, commit: Commit) -> Checked {
        let in_memory = match commit {
            Commit::DecidedBy(node) => Some(node),
            Commit::Acknowledged(_) => None,
        };
        let mut tally = Tally::default();
        let stored = self.stored.get(&(slot, term)).into_iter().flatten();
        let snapshots = self.snapshots.iter().filter(|(_, last)| **last >= slot).map(|(node, _)| node);
        stored.chain(snapshots).chain(&in_memory).for_each(|node| tally.count(*node, voters));
        tally.is_quorum(voters).then_some(()).ok_or(Violation::Durability { slot, commit })
    }
}
