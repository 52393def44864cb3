//! Deciding: in memory on one thread beside OmniPaxos, durably over loopback beside what it is made of, and a thousand
//! councils at once.
//!
//! The core is measured like everything that only computes: thread CPU time, the best of many short rounds in turns.
//! Commits go by the clock on the wall.

mod core;

use crate::row::Row;

pub(crate) fn rows() -> Vec<Row> {
    core::rows()
}
