//! The invariants of a run.

use std::collections::BTreeMap;
use std::fmt;

use holdoff_sim::kernel::NodeId;

use crate::{Digest, OperationId, Outcome, Output, Slot};

/// The collected reports of all devices.
#[derive(Default, Debug)]
pub(super) struct Oracle {
    /// The operations of each slot, as reported by the first device that applied it.
    slots: BTreeMap<Slot, Vec<(OperationId, bool)>>,
    chains: BTreeMap<Slot, Digest>,
    /// The slot in which each operation was applied.
    carried_out: BTreeMap<OperationId, Slot>,
    /// The reported outcomes of each operation.
    said: BTreeMap<OperationId, Vec<Outcome>>,
}

/// A violated invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Violation {
    Diverged { node: NodeId, slot: Slot },
    Twice(OperationId, Slot, Slot),
    Untrue { id: OperationId, said: Outcome, carried_out: Option<Slot> },
    NeverEnded { node: NodeId, id: OperationId },
    NotLearned { node: NodeId, applied: Slot, latest: Slot },
    MailLost(OperationId),
    Late(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Oracle {
    pub(super) fn hear(&mut self, node: NodeId, output: &Output) -> Result<(), Violation> {
        match output {
            Output::Applied(applied) => {
                let did: Vec<_> =
                    applied.operations.iter().map(|(done, result)| (done.id, result.is_ok())).collect();
                for (id, _) in did.iter().filter(|(_, is_done)| *is_done) {
                    self.carried_out(*id, applied.slot)?;
                }
                let first = self.slots.entry(applied.slot).or_insert_with(|| did.clone());
                if *first == did { Ok(()) } else { Err(Violation::Diverged { node, slot: applied.slot }) }
            }
            Output::Ended { id, outcome } => {
                self.said.entry(*id).or_default().push(outcome.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records that an operation was applied, as a device reported it or has it in its state.
    pub(super) fn carried_out(&mut self, id: OperationId, slot: Slot) -> Result<(), Violation> {
        let before = *self.carried_out.entry(id).or_insert(slot);
        if before == slot { Ok(()) } else { Err(Violation::Twice(id, before, slot)) }
    }

    pub(super) fn chain(&mut self, node: NodeId, slot: Slot, chain: Digest) -> Result<(), Violation> {
        let first = *self.chains.entry(slot).or_insert(chain);
        if first == chain { Ok(()) } else { Err(Violation::Diverged { node, slot }) }
    }

    pub(super) fn committed(&self, id: &OperationId) -> Option<Slot> {
        self.carried_out.get(id).copied()
    }

    pub(super) fn said(&self, id: &OperationId) -> &[Outcome] {
        self.said.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of slots that any device has applied.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Checks that every reported outcome is true at the end.
    pub(super) fn check_words(&self) -> Result<(), Violation> {
        for (id, said) in &self.said {
            let carried_out = self.committed(id);
            for said in said {
                let is_true = match said {
                    Outcome::Committed(slot) => carried_out == Some(*slot),
                    Outcome::NotCommitted(_) | Outcome::Invalid(_) => carried_out.is_none(),
                    Outcome::Unknown => true,
                };
                if !is_true {
                    return Err(Violation::Untrue { id: *id, said: said.clone(), carried_out });
                }
            }
        }
        Ok(())
    }
}
