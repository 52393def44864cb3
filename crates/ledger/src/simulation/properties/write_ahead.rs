//! Write-ahead: messages wait for the records that they depend on. Only entries, and messages that promise nothing, may leave a
//! node before its records are on disk.

use std::collections::BTreeMap;

use holdoff_paxos::log;
use holdoff_paxos::{NodeId, Slot};

use super::{Checked, Violation};
use crate::machine::KeyValue;
use crate::{Message, Output, OutputOf, Record};

#[derive(Default)]
pub(crate) struct WriteAhead {
    /// The number of each node's records that are not on its disk, and the last index that other nodes have received from it
    /// meanwhile.
    unstored: BTreeMap<NodeId, usize>,
    ahead: BTreeMap<NodeId, Slot>,
}

impl WriteAhead {
    /// Notes the records of a step, which are not on disk yet.
    pub(crate) fn unstored(&mut self, node: NodeId, records: usize) {
        *self.unstored.entry(node).or_default() += records;
    }

    /// Checks an output that leaves before the records of its step are on disk.
    pub(crate) fn sent_at_once(&mut self, node: NodeId, output: &OutputOf<KeyValue>) -> Checked {
        match output {
            Output::Send(_, Message::Log(log::Message::Append(append))) => {
                let entries = append.more.len() as u64 + u64::from(append.entry.is_some());
                let last = Slot(append.before.slot.0 + entries);
                let ahead = self.ahead.entry(node).or_default();
                *ahead = last.max(*ahead);
                Ok(())
            }
            Output::Send(_, Message::Log(_) | Message::SignatureShare(_) | Message::TermConfirmed(..)) => {
                Err(Violation::WriteAhead(Box::new(output.clone())))
            }
            _ => Ok(()),
        }
    }

    /// Notes that a record is on a node's disk.
    pub(crate) fn stored(&mut self, node: NodeId) {
        let unstored = self.unstored.entry(node).or_default();
        *unstored = unstored.saturating_sub(1);
        if *unstored == 0 {
            self.ahead.remove(&node);
        }
    }

    /// Returns true if other nodes have received entries that are not on the node's disk.
    pub(crate) fn is_ahead(&self, node: NodeId) -> bool {
        self.ahead.contains_key(&node)
    }

    /// Notes that a node has lost these records. Returns true if other nodes have received one of them.
    pub(crate) fn crashed(&mut self, node: NodeId, lost: &[Record<KeyValue>]) -> bool {
        self.unstored.remove(&node);
        let ahead = self.ahead.remove(&node);
        lost.iter().any(|record| match record {
            log::Record::Entry { slot, .. } => Some(*slot) <= ahead,
            _ => false,
        })
    }
}
