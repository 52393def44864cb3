//! A hash of a set of rows that follows each change at the cost of the change.
//!
//! It is `LtHash` with 1024 lanes of 16 bits: each row is spread over all lanes by BLAKE3, and lanes are added up without
//! carries. The order of additions does not matter, and what was added can be taken away again.
//!
//! Why not simply the XOR of hashes: with as many rows as a hash has bits, anybody solves the linear equations and has two
//! sets with one XOR. One large number as the sum (`AdHash`) resists that, but gives in to the generalised birthday attack
//! unless it is thousands of bits long. Two sets with the same sum in all lanes are a solution, with coefficients -1, 0 and
//! 1, of 1024 random equations modulo 2^16: the short integer solution problem, which lattices are believed to make hard.
//! For these sizes the best attacks known are estimated at more than 2^200 steps (Lewi, Kim, Maykov and Weis, "Securing
//! Update Propagation with Homomorphic Hashing", 2019). A row stands in a table once or not at all, so nobody can add one
//! 2^16 times over, which would be no addition. What is told of the lanes is their BLAKE3.

use std::fmt;

use serde::{Deserialize, Serialize};

const LANES: usize = 1024;
const ROW: &str = "holdoff ledger v1: one row";
const STATE: &str = "holdoff ledger v1: the sum of all rows";
const BOTH: &str = "holdoff ledger v1: two states side by side";

/// The hash of a whole state: equal for equal states, and different for different ones as far as anybody can find out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateHash([u8; 32]);

impl StateHash {
    /// The hash of two states side by side.
    pub(super) fn of_both(first: &Self, second: &Self) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(BOTH);
        Self(*hasher.update(&first.0).update(&second.0).finalize().as_bytes())
    }

    /// Its bytes.
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

/// The sum of all rows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sum(Box<[u16; LANES]>);

impl Default for Sum {
    fn default() -> Self {
        Self(Box::new([0; LANES]))
    }
}

/// Two thousand bytes say nothing to anybody.
impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sum({})", self.hash(""))
    }
}

impl Sum {
    pub(crate) fn add(&mut self, row: &[u8]) {
        self.each(row, u16::wrapping_add);
    }

    pub(crate) fn take_away(&mut self, row: &[u8]) {
        self.each(row, u16::wrapping_sub);
    }

    /// The hash of these rows, for this kind of table.
    pub(crate) fn hash(&self, kind: &str) -> StateHash {
        let mut hasher = blake3::Hasher::new_derive_key(STATE);
        for lane in self.0.iter() {
            hasher.update(&lane.to_le_bytes());
        }
        StateHash(*hasher.update(kind.as_bytes()).finalize().as_bytes())
    }

    fn each(&mut self, row: &[u8], change: impl Fn(u16, u16) -> u16) {
        let mut spread = [0; 2 * LANES];
        blake3::Hasher::new_derive_key(ROW).update(row).finalize_xof().fill(&mut spread);
        for (lane, bytes) in self.0.iter_mut().zip(spread.as_chunks().0) {
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
    fn the_order_does_not_matter_and_the_rows_do() {
        assert_eq!(sum(&["a", "b", "c"]), sum(&["c", "a", "b"]));
        assert_ne!(sum(&["a", "b"]).hash("x"), sum(&["a", "c"]).hash("x"));
        assert_ne!(sum(&["ab"]).hash("x"), sum(&["a", "b"]).hash("x"));
        assert_ne!(sum(&["a"]).hash("x"), sum(&["a"]).hash("y"));
    }

    #[test]
    fn what_was_added_can_be_taken_away() {
        let mut changed = sum(&["a", "b"]);
        changed.take_away(b"a");
        assert_eq!(changed, sum(&["b"]));
    }

    /// As a XOR would: each row twice is nothing at all.
    #[test]
    fn two_of_a_row_do_not_cancel_out() {
        assert_ne!(sum(&["a", "a"]), sum(&[]));
    }

    /// Histories hold these hashes for ever.
    #[test]
    fn it_stays_what_it_is() {
        let hash = sum(&["a", "b"]).hash("facts").to_string();
        assert_eq!(hash, "24d537c569491c1b84d3c3681d25c097e2630e1e429928ed75a7b511b08749ea");
    }
}
