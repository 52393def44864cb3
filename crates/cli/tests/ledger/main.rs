//! Ledgers of real processes: one, two, three and five daemons, of which some are killed, paused, cut off, wiped, and left
//! without room on their disk.
//!
//! Whatever happens, nothing that was acknowledged is lost, nothing happens twice, and in the end all have one history and
//! one state.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test looks at the clock, and waits for processes")]

mod alone;
mod cluster;
mod daemon;
mod deeds;
mod disks;
mod leaders;
mod linear;
mod locks;
mod members;
mod namespaces;
mod parted;
mod place;
#[path = "../process/mod.rs"]
mod process;
mod rolling;
mod signals;
mod words;
