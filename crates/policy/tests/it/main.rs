//! Tests of the public API: laws, the retry budget, the vectors for other languages, and invalid input.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

mod budget;
mod fuzz;
mod laws;
mod vectors;
