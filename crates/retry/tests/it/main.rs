//! Both executors and the adapters, and what their logs and metrics say.

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
