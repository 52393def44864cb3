//! At most once: a proposed value is decided in one slot only.

use std::collections::BTreeMap;

use super::{Checked, Violation};
use crate::Slot;
use crate::log::{Entry, EntryPayload};

/// The slot in which each value is decided.
#[derive(Default)]
pub(crate) struct AtMostOnce(BTreeMap<u64, Slot>);

impl AtMostOnce {
    /// Checks the next entry of the history.
    pub(crate) fn decided(&mut self, slot: Slot, entry: &Entry<u64>) -> Checked {
        let EntryPayload::Value(value) = entry.payload else { return Ok(()) };
        match self.0.insert(value, slot) {
            Some(first) => Err(Violation::AtMostOnce { value, first, second: slot }),
            None => Ok(()),
        }
    }

    /// Returns the number of decided values.
    pub(crate) fn values(&self) -> usize {
        self.0.len()
    }
}
