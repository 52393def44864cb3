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
    applied: BTreeMap<OperationId, Slot>,
    /// The reported outcomes of each operation.
    outcomes: BTreeMap<OperationId, Vec<Outcome>>,
}

/// A violated invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Violation {
    Diverged { node: NodeId, slot: Slot },
    AppliedTwice(OperationId, Slot, Slot),
    WrongOutcome { id: OperationId, reported: Outcome, applied: Option<Slot> },
    NeverEnded { node: NodeId, id: OperationId },
    EndedTwice(OperationId),
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
    pub(super) fn observe(&mut self, node: NodeId, output: &Output) -> Result<(), Violation> {
        match output {
            Output::Applied(applied) => {
                let operations: Vec<_> =
                    applied.operations.iter().map(|(done, result)| (done.id, result.is_ok())).collect();
                for (id, _) in operations.iter().filter(|(_, is_done)| *is_done) {
                    self.record_applied(*id, applied.slot)?;
                }
                let first = self.slots.entry(applied.slot).or_insert_with(|| operations.clone());
                if *first == operations {
                    Ok(())
                } else {
                    Err(Violation::Diverged { node, slot: applied.slot })
                }
            }
            Output::Ended { id, outcome } => {
                self.outcomes.entry(*id).or_default().push(outcome.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records that an operation was applied, as a device reported it or has it in its state.
    pub(super) fn record_applied(&mut self, id: OperationId, slot: Slot) -> Result<(), Violation> {
        let before = *self.applied.entry(id).or_insert(slot);
        if before == slot { Ok(()) } else { Err(Violation::AppliedTwice(id, before, slot)) }
    }

    pub(super) fn chain(&mut self, node: NodeId, slot: Slot, chain: Digest) -> Result<(), Violation> {
        let first = *self.chains.entry(slot).or_insert(chain);
        if first == chain { Ok(()) } else { Err(Violation::Diverged { node, slot }) }
    }

    pub(super) fn committed(&self, id: &OperationId) -> Option<Slot> {
        self.applied.get(id).copied()
    }

    pub(super) fn outcomes(&self, id: &OperationId) -> &[Outcome] {
        self.outcomes.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of slots that any device has applied.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Checks that every reported outcome is true at the end.
    pub(super) fn check_outcomes(&self) -> Result<(), Violation> {
        for (id, outcomes) in &self.outcomes {
            let applied = self.committed(id);
            for reported in outcomes {
                let is_true = match reported {
                    Outcome::Committed(slot) => applied == Some(*slot),
                    Outcome::NotCommitted(_) | Outcome::Invalid(_) => applied.is_none(),
                    Outcome::Unknown => true,
                };
                if !is_true {
                    return Err(Violation::WrongOutcome { id: *id, reported: reported.clone(), applied });
                }
            }
        }
        Ok(())
    }
}
