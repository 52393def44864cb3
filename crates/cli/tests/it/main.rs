//! Tests of the real `holdoff` binary from outside: its commands, its daemons, clusters of daemons, and its pages in
//! a browser.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, prints its figures, looks at the clock, and waits for processes"
)]

mod browser;
mod process;

mod acceptor;
#[cfg(target_os = "linux")]
mod attack;
mod cluster;
mod commands;
mod council;
#[cfg(target_os = "linux")]
mod demo;
mod deploy;
mod durable;
mod examples;
#[cfg(target_os = "linux")]
mod hostile;
mod ledger;
mod lock;
mod operator;
mod pages;
mod serve_ledger;
mod sim;
mod token;
