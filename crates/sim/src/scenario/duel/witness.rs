//! An omniscient observer that checks the guarantees of Paxos.

use std::collections::BTreeSet;

use super::wire::Operation;

/// The decisions that any member has learned, slot by slot.
#[derive(Default)]
pub(super) struct Witness {
    slots: Vec<Option<Operation>>,
    operations: BTreeSet<Operation>,
    broken: u64,
}

impl Witness {
    /// Records that a member has learned the operation of a slot. All members must learn the same operation, and each
    /// operation must have one slot.
    pub(super) fn hears(&mut self, slot: usize, operation: Operation) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        let Some(known) = self.slots.get_mut(slot) else { return };
        let is_true = match *known {
            Some(known) => known == operation,
            None => self.operations.insert(operation),
        };
        *known = Some(operation);
        self.broken += u64::from(!is_true);
    }

    /// Returns the number of slots that at least one member knows to be decided.
    pub(super) fn slots(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    /// Returns how often two members disagreed about a slot, or an operation had a second slot.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disagreement_and_doubles_are_seen() {
        let mut witness = Witness::default();
        for (slot, operation, broken) in [(0, 7, 0), (0, 7, 0), (2, 9, 0), (0, 8, 1), (1, 9, 2)] {
            witness.hears(slot, operation);
            assert_eq!(witness.broken(), broken, "{slot} {operation}");
        }
        assert_eq!(witness.slots(), 3);
    }
}
