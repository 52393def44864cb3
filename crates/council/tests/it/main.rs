//! The acceptor's service over real links, and malformed requests for it. `metrics.rs` in the parent directory is a
//! binary of its own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod acceptor;
mod fuzz;
