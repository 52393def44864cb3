//! Tests of locks through the public API, on every store: the promises, contention, and all faults at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod node;

mod chaos;
mod conformance;
mod contention;
