//! Policies by their public API: their laws, their budget, the vectors for other languages, and bad input.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

mod budget;
mod fuzz;
mod laws;
mod vectors;
