//! The ledger's machines: their laws, the page of their language, and bad input.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod fuzz;
mod laws;
mod page;
