//! Which transactions are done: what makes a repeated one the same one.

use std::collections::{BTreeMap, VecDeque};

use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use crate::entry::TxId;
use crate::machine::{Failed, StateHash, Sum};

/// So many places of the history back, transactions are known. Everybody forgets at the same index, so this is no
/// setting: it is part of what a history means.
pub const REMEMBERED: u64 = 10_000;

/// A transaction, where it stands, and what came of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Row<A> {
    slot: Slot,
    tx_id: TxId,
    result: Result<A, Failed>,
}

/// The transactions of the last places, and what came of them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Done<A> {
    results: BTreeMap<TxId, (Slot, Result<A, Failed>)>,
    order: VecDeque<(Slot, TxId)>,
    /// Of all rows: everybody has the same at the same index.
    sum: Sum,
}

impl<A> Default for Done<A> {
    fn default() -> Self {
        Self { results: BTreeMap::new(), order: VecDeque::new(), sum: Sum::default() }
    }
}

impl<A: Clone + Serialize> Done<A> {
    /// These rows, in the order of their places. None if they are in another, if one is there twice, or if one is not known
    /// any more at the last place.
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

    /// All of it, in the order of places.
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

    /// Adds one, and forgets those that are too far back.
    pub(crate) fn add(&mut self, slot: Slot, tx_id: TxId, result: Result<A, Failed>) {
        self.sum.add(&bytes(slot, tx_id, &result));
        self.results.insert(tx_id, (slot, result));
        self.order.push_back((slot, tx_id));
        self.forget(slot);
    }

    /// The history has come to this place: those that are too far back are forgotten, whatever stands there.
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

/// A result that could be written into the history can be written here.
fn bytes<A: Serialize>(slot: Slot, tx_id: TxId, result: &Result<A, Failed>) -> Vec<u8> {
    postcard::to_stdvec(&(slot, tx_id, result)).unwrap_or_default()
}
