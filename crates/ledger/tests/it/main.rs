//! The tests of the ledger's machines: their laws, the examples of their language, and invalid input.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod fuzz;
mod laws;
mod page;
