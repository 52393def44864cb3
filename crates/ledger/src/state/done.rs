//! Which transactions are done: what makes a repeated one the same one.

use std::collections::{BTreeMap, VecDeque};

use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use crate::entry::TxId;
use crate::machine::Failed;

/// So many places of the history back, transactions are known. Everybody forgets at the same index, so this is no
/// setting: it is part of what a history means.
pub const REMEMBERED: u64 = 10_000;

/// The transactions of the last places, and what came of them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Done<A> {
    results: BTreeMap<TxId, (Slot, Result<A, Failed>)>,
    order: VecDeque<(Slot, TxId)>,
}

impl<A> Default for Done<A> {
    fn default() -> Self {
        Self { results: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<A> Done<A> {
    pub(crate) fn get(&self, tx_id: TxId) -> Option<(Slot, &Result<A, Failed>)> {
        self.results.get(&tx_id).map(|(slot, result)| (*slot, result))
    }

    /// Adds one, and forgets those that are too far back.
    pub(crate) fn add(&mut self, slot: Slot, tx_id: TxId, result: Result<A, Failed>) {
        self.results.insert(tx_id, (slot, result));
        self.order.push_back((slot, tx_id));
        while let Some((first, forgotten)) = self.order.front().copied() {
            if first.0 + REMEMBERED > slot.0 {
                break;
            }
            self.results.remove(&forgotten);
            self.order.pop_front();
        }
    }
}
