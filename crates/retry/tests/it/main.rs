//! Tests of both executors and the adapters, with their logs and metrics.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(all(feature = "reqwest-middleware", feature = "tower"))]
mod adapters;
#[cfg(feature = "tokio")]
mod executor;
mod observability;
mod pitfalls;
mod runtimes;
