//! Tests of the lab: its kernel, and the results of its scenarios.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod check;
mod classic;
mod duel;
mod election;
mod kernel;
mod outage;
mod runner;
mod storm;
