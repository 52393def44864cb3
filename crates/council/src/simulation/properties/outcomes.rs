//! Truthful outcomes: an operation is applied if a device reports it as committed, and is not applied if a device denies it.

use std::collections::BTreeMap;

use super::{AtMostOnce, Checked, Violation};
use crate::{OperationId, Outcome};

/// The reported outcomes of each operation.
#[derive(Default)]
pub(crate) struct Outcomes(BTreeMap<OperationId, Vec<Outcome>>);

impl Outcomes {
    pub(crate) fn ended(&mut self, id: OperationId, outcome: Outcome) {
        self.0.entry(id).or_default().push(outcome);
    }

    /// Returns true if a device has reported an outcome of the operation.
    pub(crate) fn has_ended(&self, id: &OperationId) -> bool {
        self.0.contains_key(id)
    }

    /// Checks that every reported outcome is true at the end of the run.
    pub(crate) fn check(&self, applied: &AtMostOnce) -> Checked {
        let reports = self.0.iter().flat_map(|(id, outcomes)| outcomes.iter().map(move |it| (*id, it)));
        for (id, reported) in reports {
            let applied = applied.slot_of(&id);
            let is_true = match reported {
                Outcome::Committed(slot) => applied == Some(*slot),
                Outcome::NotCommitted(_) | Outcome::Invalid(_) => applied.is_none(),
                Outcome::Unknown => true,
            };
            if !is_true {
                return Err(Violation::WrongOutcome { id, reported: reported.clone(), applied });
            }
        }
        Ok(())
    }
}
