//! Election safety: a term has one leader. Leader completeness: a leader has all entries decided in earlier terms.

use std::collections::BTreeSet;

use super::{Agreement, Checked, Violation};
use crate::Slot;
use crate::log::simulation::machine::State;
use crate::log::{Node, Term};

/// The terms that have a leader. A term contains its leader.
#[derive(Default)]
pub(crate) struct Leadership(BTreeSet<Term>);

impl Leadership {
    /// Checks a node that begins to lead.
    pub(crate) fn leads(&mut self, term: Term, node: &Node<u64, State>, agreement: &Agreement) -> Checked {
        if !self.0.insert(term) {
            return Err(Violation::ElectionSafety(term));
        }
        let base = node.store().snapshot().last.slot;
        let lacks = |slot: Slot| node.store().entry(slot) != agreement.entry(slot);
        match agreement.decided_before(term).find(|slot| *slot > base && lacks(*slot)) {
            Some(slot) => Err(Violation::LeaderCompleteness { term, slot }),
            None => Ok(()),
        }
    }
}
