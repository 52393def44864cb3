//! Tests of the lab: its kernel, and the results of its scenarios.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod check;
mod classic;
mod determinism;
mod duel;
mod election;
mod failed;
mod outage;
mod queue;
mod storm;
mod world;
