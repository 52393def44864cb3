//! Election safety: a term has one leader. Log matching: equal index and term mean an equal entry.

use std::collections::BTreeMap;

use holdoff_paxos::log::{self, Term};
use holdoff_paxos::{NodeId, Slot};

use super::{Checked, Violation};
use crate::entry::link;
use crate::machine::KeyValue;
use crate::{Hash, Record};

#[derive(Default)]
pub(crate) struct Terms {
    leaders: BTreeMap<Term, NodeId>,
    /// The hash of every entry that a node wrote, by index and term.
    written: BTreeMap<(Slot, Term), Hash>,
}

impl Terms {
    /// Checks a node that leads.
    pub(crate) fn leads(&mut self, term: Term, node: NodeId) -> Checked {
        let first = *self.leaders.entry(term).or_insert(node);
        (first == node).then_some(()).ok_or(Violation::ElectionSafety { term, first, second: node })
    }

    /// Returns the number of terms that have a leader.
    pub(crate) fn led(&self) -> usize {
        self.leaders.len()
    }

    /// Checks a record of a step.
    pub(crate) fn written(&mut self, record: &Record<KeyValue>) -> Checked {
        let log::Record::Entry { slot, entry } = record else { return Ok(()) };
        let (slot, term) = (*slot, entry.term);
        let hash = link(Hash::default(), slot, entry).unwrap();
        let first = *self.written.entry((slot, term)).or_insert(hash);
        (first == hash).then_some(()).ok_or(Violation::LogMatching { slot, term })
    }
}
