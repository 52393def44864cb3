//! Write-ahead: a node stores its records in the order of its steps, and its messages wait for them. Early messages of a
//! leader overtake entries of its own term only.

use std::collections::{BTreeMap, VecDeque};

use super::{Checked, Violation};
use crate::NodeId;
use crate::log::simulation::machine::State;
use crate::log::{Message, Output, Record};

#[derive(Default)]
pub(crate) struct WriteAhead {
    /// The records of each node that are not on its disk.
    unstored: BTreeMap<NodeId, VecDeque<Record<u64, State>>>,
    /// The number of unstored entries that early messages of each node have overtaken.
    overtaken: BTreeMap<NodeId, u64>,
}

impl WriteAhead {
    /// Notes the records of a step, which are not on disk yet.
    pub(crate) fn unstored(&mut self, node: NodeId, records: &[Record<u64, State>]) {
        self.unstored.entry(node).or_default().extend(records.iter().cloned());
    }

    /// Checks an output that leaves before the records of its step are on disk.
    pub(crate) fn sent_at_once(&mut self, node: NodeId, output: &Output<u64, State>) -> Checked {
        let Output::Send(_, Message::Append(append)) = output else {
            return Err(Violation::SentBeforeStored(Box::new(output.clone())));
        };
        let unstored = self.unstored.get(&node).into_iter().flatten();
        let must_wait = |record: &&Record<u64, State>| match record {
            Record::Entry { entry, .. } => entry.term != append.term,
            Record::Promised(_) | Record::Accepted { .. } => true,
            Record::Decided(_) | Record::Snapshot(_) => false,
        };
        if let Some(record) = unstored.clone().find(must_wait) {
            let (append, record) = (append.clone(), Box::new(record.clone()));
            return Err(Violation::Overtaken { append, record });
        }
        let entries = unstored.filter(|record| matches!(record, Record::Entry { .. })).count() as u64;
        *self.overtaken.entry(node).or_default() += entries;
        Ok(())
    }

    /// Checks that a record on a node's disk is the first of its unstored records.
    pub(crate) fn stored(&mut self, node: NodeId, record: &Record<u64, State>) -> Checked {
        let unstored = self.unstored.entry(node).or_default();
        let is_next = unstored.pop_front().as_ref() == Some(record);
        if unstored.is_empty() {
            self.overtaken.remove(&node);
        }
        let out_of_order = || Violation::StoredOutOfOrder { node, record: Box::new(record.clone()) };
        is_next.then_some(()).ok_or_else(out_of_order)
    }

    /// Returns whether other nodes have received entries that are not on the node's disk.
    pub(crate) fn is_ahead(&self, node: NodeId) -> bool {
        self.overtaken.get(&node).is_some_and(|entries| *entries > 0)
    }

    /// Notes that a node has lost its unstored records. Returns how many of them were overtaken.
    pub(crate) fn crashed(&mut self, node: NodeId) -> u64 {
        self.unstored.remove(&node);
        self.overtaken.remove(&node).unwrap_or_default()
    }
}
