//! The dedup window: the latest transactions of the history and their results, by which a repeated submission is
//! recognized.
//!
//! A submission names its *birth*: an index up to which its sender knows that the transaction is not in the history. A
//! transaction whose birth is not before [`Done::forgotten`] is either in the window or not in the history. The leader
//! executes only such transactions, so that a transaction takes effect at most once, however late it is submitted again.

use std::collections::{BTreeMap, VecDeque};

use holdoff_paxos::Slot;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::entry::TxId;
use crate::machine::{GoalError, StateHash, Sum};

/// The limits of the dedup window. All nodes forget a transaction at the same index, so that these numbers must be equal
/// on all nodes: [`DedupLimits::default`], except in tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupLimits {
    /// The maximum number of transactions.
    pub transactions: usize,
    /// The maximum size of the encoded results, in bytes. The latest transaction stays, however large its result is.
    pub bytes: usize,
}

impl Default for DedupLimits {
    /// At 15 000 transactions a second the window covers two seconds: twice the interval at which nodes send pending
    /// transactions again.
    fn default() -> Self {
        Self { transactions: 32_768, bytes: 8 << 20 }
    }
}

/// The position of a transaction in the history: its slot, and its number within the slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct TxPosition {
    pub(crate) slot: Slot,
    pub(crate) number: u32,
}

impl TxPosition {
    /// Returns the position of the only transaction of a slot.
    pub(crate) fn only(slot: Slot) -> Self {
        Self { slot, number: 0 }
    }
}

/// A transaction, its position and its result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Row<A> {
    position: TxPosition,
    tx_id: TxId,
    result: Result<A, GoalError>,
}

/// The content of a dedup window, as snapshots hold it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DoneRows<A> {
    /// In the order of their positions.
    pub(crate) rows: Vec<Row<A>>,
    pub(crate) forgotten: Slot,
}

impl<A> Default for DoneRows<A> {
    fn default() -> Self {
        Self { rows: Vec::new(), forgotten: Slot(0) }
    }
}

impl<A: Serialize> DoneRows<A> {
    /// Encodes the rows in chunks that exceed the limit by one row at most. The first chunk exists even without rows.
    pub(crate) fn chunks(&self, limit: usize) -> impl Iterator<Item = Vec<u8>> {
        let (mut rows, mut is_first) = (self.rows.iter().peekable(), true);
        std::iter::from_fn(move || {
            if !std::mem::take(&mut is_first) {
                rows.peek()?;
            }
            let mut chunk = self.forgotten.0.to_le_bytes().to_vec();
            for row in rows.by_ref() {
                // A result that could be encoded for the history can be encoded here.
                chunk.extend(postcard::to_stdvec(row).unwrap_or_default());
                if chunk.len() >= limit {
                    break;
                }
            }
            Some(chunk)
        })
    }
}

impl<A: DeserializeOwned> DoneRows<A> {
    /// Adds the rows of the next chunk. Returns `None` if it cannot be decoded.
    pub(crate) fn add_chunk(&mut self, chunk: &[u8]) -> Option<()> {
        let (forgotten, mut rows) = chunk.split_first_chunk()?;
        self.forgotten = Slot(u64::from_le_bytes(*forgotten));
        while !rows.is_empty() {
            let (row, rest) = postcard::take_from_bytes(rows).ok()?;
            self.rows.push(row);
            rows = rest;
        }
        Some(())
    }
}

/// The latest transactions, and their results.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Done<A> {
    limits: DedupLimits,
    results: BTreeMap<TxId, (TxPosition, Result<A, GoalError>)>,
    /// The ids in the order of their positions, each with the encoded size of its row.
    order: VecDeque<(TxId, usize)>,
    bytes: usize,
    forgotten: Slot,
    /// The sum of all rows, which is equal on all nodes at the same index.
    sum: Sum,
}

impl<A: Clone + Serialize> Done<A> {
    pub(crate) fn new(limits: DedupLimits) -> Self {
        let (results, order, sum) = (BTreeMap::new(), VecDeque::new(), Sum::default());
        Self { limits, results, order, bytes: 0, forgotten: Slot(0), sum }
    }

    /// Builds the window from its rows. Returns `None` if the rows are out of order or beyond the last index, if an id
    /// occurs twice, if a forgotten slot has a whole row, or if there are more rows than the limits allow.
    pub(crate) fn of(content: DoneRows<A>, last: Slot, limits: DedupLimits) -> Option<Self> {
        let mut done = Self { forgotten: content.forgotten, ..Self::new(limits) };
        let mut before = None;
        for Row { position, tx_id, result } in content.rows {
            // A slot may be forgotten in part: its first transactions are gone, and the others are still here.
            let is_kept = position.slot > content.forgotten
                || (position.slot == content.forgotten && position.number > 0);
            let is_next = before < Some(position) && position.slot <= last;
            if !is_kept || !is_next || done.results.contains_key(&tx_id) {
                return None;
            }
            done.push(position, tx_id, result);
            before = Some(position);
        }
        (!done.is_over_limit() && content.forgotten <= last).then_some(done)
    }

    /// Returns the content of the window.
    pub(crate) fn rows(&self) -> DoneRows<A> {
        let row = |(tx_id, _): &(TxId, usize)| {
            let (position, result) = self.results.get(tx_id)?;
            Some(Row { position: *position, tx_id: *tx_id, result: result.clone() })
        };
        DoneRows { rows: self.order.iter().filter_map(row).collect(), forgotten: self.forgotten }
    }

    /// Returns the size of the encoded rows, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the hash of the rows and of the last forgotten slot.
    pub(crate) fn hash(&self) -> StateHash {
        self.sum.hash("done").with_index(self.forgotten.0)
    }

    /// Returns the last slot with a forgotten transaction. All transactions of later slots are in the window.
    pub(crate) fn forgotten(&self) -> Slot {
        self.forgotten
    }

    pub(crate) fn get(&self, tx_id: TxId) -> Option<(Slot, &Result<A, GoalError>)> {
        self.results.get(&tx_id).map(|(position, result)| (position.slot, result))
    }

    /// Adds the next transaction of the history, and forgets the oldest transactions beyond the limits.
    pub(crate) fn add(&mut self, position: TxPosition, tx_id: TxId, result: Result<A, GoalError>) {
        self.push(position, tx_id, result);
        while self.is_over_limit() {
            self.forget_oldest();
        }
    }

    fn push(&mut self, position: TxPosition, tx_id: TxId, result: Result<A, GoalError>) {
        let row = encoded(position, tx_id, &result);
        self.sum.add(&row);
        self.bytes += row.len();
        self.order.push_back((tx_id, row.len()));
        self.results.insert(tx_id, (position, result));
    }

    fn is_over_limit(&self) -> bool {
        let count = self.order.len();
        count > self.limits.transactions || (count > 1 && self.bytes > self.limits.bytes)
    }

    fn forget_oldest(&mut self) {
        let Some((tx_id, bytes)) = self.order.pop_front() else { return };
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some((position, result)) = self.results.remove(&tx_id) {
            self.sum.take_away(&encoded(position, tx_id, &result));
            self.forgotten = position.slot;
        }
    }
}

/// Encodes a row. A result that could be encoded for the history can be encoded here.
fn encoded<A: Serialize>(position: TxPosition, tx_id: TxId, result: &Result<A, GoalError>) -> Vec<u8> {
    postcard::to_stdvec(&(position, tx_id, result)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: DedupLimits = DedupLimits { transactions: 3, bytes: 1 << 20 };

    fn filled(limits: DedupLimits, positions: &[(u64, u32)]) -> Done<String> {
        let mut done = Done::new(limits);
        for (id, (slot, number)) in (1..).zip(positions) {
            let position = TxPosition { slot: Slot(*slot), number: *number };
            done.add(position, TxId(id), Ok("result".to_owned()));
        }
        done
    }

    fn known(done: &Done<String>) -> Vec<u128> {
        (1..10).filter(|id| done.get(TxId(*id)).is_some()).collect()
    }

    #[test]
    fn the_window_is_counted_in_transactions_and_not_in_slots() {
        let done = filled(THREE, &[(2, 0), (50, 0), (900, 0)]);
        assert_eq!((known(&done), done.forgotten()), (vec![1, 2, 3], Slot(0)));
        let done = filled(THREE, &[(2, 0), (50, 0), (900, 0), (901, 0)]);
        assert_eq!((known(&done), done.forgotten()), (vec![2, 3, 4], Slot(2)));
    }

    #[test]
    fn a_slot_that_is_forgotten_in_part_is_forgotten() {
        let done = filled(THREE, &[(5, 0), (5, 1), (5, 2), (6, 0)]);
        assert_eq!((known(&done), done.forgotten()), (vec![2, 3, 4], Slot(5)));
        let restored = Done::of(done.rows(), Slot(6), THREE);
        assert_eq!(restored.as_ref(), Some(&done));
    }

    #[test]
    fn the_window_is_limited_in_bytes_and_keeps_the_latest_transaction() {
        let done = filled(DedupLimits { transactions: 100, bytes: 25 }, &[(1, 0), (2, 0), (3, 0), (4, 0)]);
        assert_eq!((known(&done), done.forgotten()), (vec![3, 4], Slot(2)));
        let done = filled(DedupLimits { transactions: 100, bytes: 1 }, &[(1, 0), (2, 0)]);
        assert_eq!((known(&done), done.forgotten()), (vec![2], Slot(1)));
    }

    #[test]
    fn the_hash_covers_the_rows_and_the_last_forgotten_slot() {
        let done = filled(THREE, &[(2, 0), (3, 0), (4, 0), (5, 0)]);
        let hash = |change: fn(&mut DoneRows<String>)| {
            let mut rows = done.rows();
            change(&mut rows);
            Done::of(rows, Slot(5), THREE).map(|done| done.hash())
        };
        assert_eq!(hash(|_| {}), Some(done.hash()));
        assert_ne!(hash(|rows| rows.forgotten = Slot(0)), Some(done.hash()));
        assert_ne!(hash(|rows| drop(rows.rows.pop())), Some(done.hash()));
        let rejected: [fn(&mut DoneRows<String>); 4] = [
            |rows| rows.rows.swap(0, 1),
            |rows| rows.forgotten = Slot(3),
            |rows| rows.forgotten = Slot(9),
            |rows| rows.rows.push(rows.rows[0].clone()),
        ];
        for change in rejected {
            assert_eq!(hash(change), None);
        }
        assert_eq!(Done::of(done.rows(), Slot(4), THREE), None, "a row is beyond the last index");
    }
}
