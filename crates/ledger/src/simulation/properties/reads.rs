//! Fresh reads: a read by quorum or by lease includes all entries that were acknowledged before it.

use holdoff_paxos::Slot;

use super::{Checked, Violation};
use crate::{Consistency, ReadId};

#[derive(Default)]
pub(crate) struct Reads {
    /// The highest acknowledged index.
    acknowledged: Slot,
    /// Each read, and the highest index acknowledged before it.
    begun: Vec<(Consistency, Slot)>,
}

impl Reads {
    pub(crate) fn begin(&mut self, consistency: Consistency) -> ReadId {
        self.begun.push((consistency, self.acknowledged));
        ReadId(self.begun.len() as u64 - 1)
    }

    pub(crate) fn acknowledged(&mut self, index: Slot) {
        self.acknowledged = self.acknowledged.max(index);
    }

    /// Returns the consistency of a read.
    pub(crate) fn consistency(&self, read: ReadId) -> Option<Consistency> {
        self.begun.get(usize::try_from(read.0).unwrap()).map(|(consistency, _)| *consistency)
    }

    /// Checks the index of an answer.
    pub(crate) fn answered(&self, read: ReadId, index: Slot) -> Checked {
        match self.begun.get(usize::try_from(read.0).unwrap()).copied() {
            Some((consistency, before)) if consistency != Consistency::Local && index < before => {
                Err(Violation::StaleRead { consistency, index, before })
            }
            _ => Ok(()),
        }
    }
}
