//! Property tests of the proposer and the learner.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod laws;
