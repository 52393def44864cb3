//! The daemon in this process, over real HTTP, on both stores. `secrets.rs` is a separate binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod support;

mod acceptor;
mod client;
mod dashboard;
mod events;
#[cfg(unix)]
mod hostile;
mod ledger;
mod lock_ledger;
mod locks;
#[cfg(feature = "otlp")]
mod otlp;
mod policies;
mod problems;
mod routes;
mod signal_load;
mod signals;
mod steps;
mod tasks;
mod tls;
mod tokens;
mod workers;
