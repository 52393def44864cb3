//! At most once: a transaction is committed at one index only, however often clients submit it.

use std::collections::BTreeMap;

use holdoff_paxos::Slot;

use super::{Checked, Violation};
use crate::TxId;

/// The index of each committed transaction.
#[derive(Default)]
pub(crate) struct AtMostOnce(BTreeMap<TxId, Slot>);

impl AtMostOnce {
    /// Checks the transaction of the next entry of the history.
    pub(crate) fn committed(&mut self, tx_id: TxId, index: Slot) -> Checked {
        match self.0.insert(tx_id, index) {
            Some(first) => Err(Violation::CommittedTwice { tx_id, first, second: index }),
            None => Ok(()),
        }
    }

    /// Returns the index of a transaction, if it is committed.
    pub(crate) fn index_of(&self, tx_id: TxId) -> Option<Slot> {
        self.0.get(&tx_id).copied()
    }
}
