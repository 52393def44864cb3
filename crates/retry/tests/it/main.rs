//! Tests of both executors and the adapters, with their logs and metrics.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

#[cfg(all(feature = "reqwest", feature = "tower"))]
mod adapters;
#[cfg(feature = "tokio")]
mod blocking;
#[cfg(feature = "tokio")]
mod executor;
mod logs;
mod metrics;
