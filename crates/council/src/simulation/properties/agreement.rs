//! Agreement: all devices apply the same operations in a slot, and have the same hash chain after it.

use std::collections::BTreeMap;

use holdoff_sim::kernel::NodeId;

use super::{Checked, Violation};
use crate::{Digest, OperationId, Slot};

#[derive(Default)]
pub(crate) struct Agreement {
    /// The operations of each slot, as reported by the first device that applied it, and whether each had an effect.
    slots: BTreeMap<Slot, Vec<(OperationId, bool)>>,
    chains: BTreeMap<Slot, Digest>,
}

impl Agreement {
    /// Checks the operations that a device applies in a slot.
    pub(crate) fn applied(
        &mut self,
        node: NodeId,
        slot: Slot,
        operations: &[(OperationId, bool)],
    ) -> Checked {
        let first = self.slots.entry(slot).or_insert_with(|| operations.to_vec());
        (*first == operations).then_some(()).ok_or(Violation::Diverged { node, slot })
    }

    /// Checks the hash chain of a device after a slot.
    pub(crate) fn reached(&mut self, node: NodeId, slot: Slot, chain: Digest) -> Checked {
        let first = *self.chains.entry(slot).or_insert(chain);
        (first == chain).then_some(()).ok_or(Violation::Diverged { node, slot })
    }

    /// Returns the number of slots that any device has applied.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}
