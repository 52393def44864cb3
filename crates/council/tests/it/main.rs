//! The acceptor's service over real links, and bad questions for it. `metrics.rs` beside has a binary of its own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod acceptor;
mod fuzz;
