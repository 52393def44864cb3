//! The remembered transactions, by which a state recognises a repeated transaction id.

use std::collections::{BTreeMap, VecDeque};

use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use crate::entry::TxId;
use crate::machine::{Failed, StateHash, Sum};

/// The number of indices for which a state remembers transactions. All nodes forget a transaction at the same index.
/// Therefore this is a constant of the format and not an option.
pub const REMEMBERED: u64 = 10_000;

/// A transaction, its index and its result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Row<A> {
    slot: Slot,
    tx_id: TxId,
    result: Result<A, Failed>,
}

/// The transactions of the last [`REMEMBERED`] indices, and their results.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Done<A> {
    results: BTreeMap<TxId, (Slot, Result<A, Failed>)>,
    order: VecDeque<(Slot, TxId)>,
    /// The sum of all rows, which is equal on all nodes at the same index.
    sum: Sum,
}

impl<A> Default for Done<A> {
    fn default() -> Self {
        Self { results: BTreeMap::new(), order: VecDeque::new(), sum: Sum::default() }
    }
}

impl<A: Clone + Serialize> Done<A> {
    /// Builds the set from rows in the order of their indices. Returns `None` if the rows are out of order, if an id
    /// occurs twice, or if a row is outside the range that is remembered at the last index.
    pub(crate) fn of(rows: &[Row<A>], last: Slot) -> Option<Self> {
        let mut done = Self::default();
        for Row { slot, tx_id, result } in rows {
            let is_next = done.order.back().is_none_or(|(before, _)| before < slot);
            let is_known = *slot <= last && slot.0.saturating_add(REMEMBERED) > last.0;
            if !is_next || !is_known || done.results.contains_key(tx_id) {
                return None;
            }
            done.add(*slot, *tx_id, result.clone());
        }
        Some(done)
    }

    /// Returns all rows, in the order of their indices.
    pub(crate) fn rows(&self) -> Vec<Row<A>> {
        let row = |(slot, tx_id): &(Slot, TxId)| {
            let (_, result) = self.results.get(tx_id)?;
            Some(Row { slot: *slot, tx_id: *tx_id, result: result.clone() })
        };
        self.order.iter().filter_map(row).collect()
    }

    pub(crate) fn hash(&self) -> StateHash {
        self.sum.hash("done")
    }

    pub(crate) fn get(&self, tx_id: TxId) -> Option<(Slot, &Result<A, Failed>)> {
        self.results.get(&tx_id).map(|(slot, result)| (*slot, result))
    }

    /// Adds a transaction and forgets the transactions that are too old.
    pub(crate) fn add(&mut self, slot: Slot, tx_id: TxId, result: Result<A, Failed>) {
        self.sum.add(&bytes(slot, tx_id, &result));
        self.results.insert(tx_id, (slot, result));
        self.order.push_back((slot, tx_id));
        self.forget(slot);
    }

    /// Forgets the transactions that are too old at this index, whatever the entry at this index is.
    pub(crate) fn forget(&mut self, now: Slot) {
        while let Some((slot, tx_id)) = self.order.front().copied() {
            if slot.0.saturating_add(REMEMBERED) > now.0 {
                break;
            }
            if let Some((_, result)) = self.results.remove(&tx_id) {
                self.sum.take_away(&bytes(slot, tx_id, &result));
            }
            self.order.pop_front();
        }
    }
}

/// Encodes a row. A result that could be encoded for the history can be encoded here.
fn bytes<A: Serialize>(slot: Slot, tx_id: TxId, result: &Result<A, Failed>) -> Vec<u8> {
    postcard::to_stdvec(&(slot, tx_id, result)).unwrap_or_default()
}
