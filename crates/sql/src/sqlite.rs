//! Stores in a SQLite file, shared by any number of processes on one machine.
//!
//! Writers begin with `begin immediate`: a transaction that reads first and writes later fails with a locked
//! database, however long its busy timeout is.

pub mod backup;
mod changes;
mod file;
mod migrate;
mod time;

pub use changes::{Changes, LOOK_EVERY};
pub use file::{File, Write, now_in};
pub use migrate::migrate;
pub use time::{Clock, micros};
