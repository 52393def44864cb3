//! A hash of a set of rows, whose update costs as much as the change.
//!
//! It is `LtHash` with 1024 lanes of 16 bits: BLAKE3 spreads each row over all lanes, and lanes are added without
//! carries. The order of additions does not matter, and an added row can be subtracted again.
//!
//! The XOR of hashes would not be safe: with as many rows as a hash has bits, an attacker solves the linear equations
//! and obtains two sets with one XOR. One large number as the sum (`AdHash`) resists that, but the generalised
//! birthday attack breaks it unless it is thousands of bits long. Two sets with the same sum in all lanes are a
//! solution, with coefficients -1, 0 and 1, of 1024 random equations modulo 2^16. This is the short integer solution
//! problem, which is believed to be hard on lattices. For these sizes the best known attacks are estimated at more
//! than 2^200 steps (Lewi, Kim, Maykov and Weis, "Securing Update Propagation with Homomorphic Hashing", 2019). A
//! table contains a row once or not at all, so an attacker cannot add a row 2^16 times, which would leave the sum
//! unchanged. The published hash is the BLAKE3 hash of the lanes.

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

const LANES: usize = 1024;
const ROW: &str = "holdoff ledger v1: one row";
const STATE: &str = "holdoff ledger v1: the sum of all rows";
const INDEXED: &str = "holdoff ledger v1: a state and an index";
const BOTH: &str = "holdoff ledger v1: two states side by side";

/// The hash of a whole state. Equal states have equal hashes, and it is infeasible to find two different states with
/// the same hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct StateHash([u8; 32]);

impl StateHash {
    /// Returns the hash of two states side by side.
    pub(super) fn of_both(first: &Self, second: &Self) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(BOTH);
        Self(*hasher.update(&first.0).update(&second.0).finalize().as_bytes())
    }

    /// Returns the hash of this state together with an index.
    pub(crate) fn with_index(self, index: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(INDEXED);
        Self(*hasher.update(&self.0).update(&index.to_le_bytes()).finalize().as_bytes())
    }

    /// Returns the bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The sum of all rows, and its hash, which is computed on first use and cached. A change touches one of many tables,
/// but a state hash needs the hashes of all tables.
#[derive(Clone)]
pub(crate) struct Sum {
    lanes: Box<[u16; LANES]>,
    hash: OnceLock<StateHash>,
    /// The size of all rows.
    bytes: u64,
}

impl Default for Sum {
    fn default() -> Self {
        Self { lanes: Box::new([0; LANES]), hash: OnceLock::new(), bytes: 0 }
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        self.lanes == other.lanes
    }
}

impl Eq for Sum {}

/// Shows the first lane only: the sum has two thousand bytes.
impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sum({:?}…)", self.lanes.first())
    }
}

impl Sum {
    pub(crate) fn add(&mut self, row: &[u8]) {
        self.bytes = self.bytes.saturating_add(row.len() as u64);
        self.each(row, u16::wrapping_add);
    }

    pub(crate) fn take_away(&mut self, row: &[u8]) {
        self.bytes = self.bytes.saturating_sub(row.len() as u64);
        self.each(row, u16::wrapping_sub);
    }

    /// Returns the size of all rows, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the hash of these rows. `kind` is the kind of the table and must be the same in every call.
    pub(crate) fn hash(&self, kind: &str) -> StateHash {
        *self.hash.get_or_init(|| {
            let lanes: Vec<u8> = self.lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect();
            let mut hasher = blake3::Hasher::new_derive_key(STATE);
            StateHash(*hasher.update(&lanes).update(kind.as_bytes()).finalize().as_bytes())
        })
    }

    fn each(&mut self, row: &[u8], change: impl Fn(u16, u16) -> u16) {
        self.hash = OnceLock::new();
        let mut spread = [0; 2 * LANES];
        blake3::Hasher::new_derive_key(ROW).update(row).finalize_xof().fill(&mut spread);
        for (lane, bytes) in self.lanes.iter_mut().zip(spread.as_chunks().0) {
            *lane = change(*lane, u16::from_le_bytes(*bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(rows: &[&str]) -> Sum {
        let mut sum = Sum::default();
        for row in rows {
            sum.add(row.as_bytes());
        }
        sum
    }

    #[test]
    fn the_sum_depends_on_the_rows_but_not_on_their_order() {
        assert_eq!(sum(&["a", "b", "c"]), sum(&["c", "a", "b"]));
        assert_ne!(sum(&["a", "b"]).hash("x"), sum(&["a", "c"]).hash("x"));
        assert_ne!(sum(&["ab"]).hash("x"), sum(&["a", "b"]).hash("x"));
        assert_ne!(sum(&["a"]).hash("x"), sum(&["a"]).hash("y"));
        let mut changed = sum(&["a"]);
        let before = changed.hash("x");
        changed.add(b"b");
        assert_eq!(changed.hash("x"), sum(&["b", "a"]).hash("x"));
        changed.take_away(b"b");
        assert_eq!(changed.hash("x"), before);
    }

    #[test]
    fn an_added_row_can_be_subtracted() {
        let mut changed = sum(&["a", "b"]);
        changed.take_away(b"a");
        assert_eq!(changed, sum(&["b"]));
    }

    /// With XOR, adding a row twice would have no effect.
    #[test]
    fn a_row_added_twice_does_not_cancel_out() {
        assert_ne!(sum(&["a", "a"]), sum(&[]));
    }

    /// Histories contain these hashes permanently.
    #[test]
    fn the_hash_of_known_rows_does_not_change() {
        let hash = sum(&["a", "b"]).hash("facts").to_string();
        assert_eq!(hash, "24d537c569491c1b84d3c3681d25c097e2630e1e429928ed75a7b511b08749ea");
    }
}
