//! At most once: an operation is applied in one slot only.

use std::collections::BTreeMap;

use super::{Checked, Violation};
use crate::{OperationId, Slot};

/// The slot in which each operation was applied.
#[derive(Default)]
pub(crate) struct AtMostOnce(BTreeMap<OperationId, Slot>);

impl AtMostOnce {
    /// Checks an applied operation, as a device reports it or has it in its state.
    pub(crate) fn applied(&mut self, id: OperationId, slot: Slot) -> Checked {
        let first = *self.0.entry(id).or_insert(slot);
        (first == slot).then_some(()).ok_or(Violation::AppliedTwice { id, first, second: slot })
    }

    /// Returns the slot of an operation, if it was applied.
    pub(crate) fn slot_of(&self, id: &OperationId) -> Option<Slot> {
        self.0.get(id).copied()
    }
}
