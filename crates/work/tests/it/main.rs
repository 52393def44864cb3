//! Durable work through its public API: on every store, over HTTP, inside callers' own transactions, and under all
//! faults at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod chaos;
#[cfg(all(feature = "http", feature = "postgres", feature = "sqlite"))]
mod conformance;
#[cfg(all(feature = "http", feature = "sqlite"))]
mod http_worker;
#[cfg(all(feature = "http", feature = "postgres", feature = "sqlite"))]
mod observability;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod own_transaction;
mod settings_fuzz;
