//! **What is there after a crash.** Databases in files, and the directories they lie in.
//!
//! - [`database`]: a redb file that can be opened again, whatever moment its maker was killed at.
//! - [`store`]: such a file with a format, and with a life that is drawn when it is made.
//! - [`folder`]: directories that only their owner may look into, and that know of their files after a crash.
//! - `forgetful` (a feature): a disk in memory that loses what was not synced, or half of it.

pub mod database;
pub mod folder;
#[cfg(feature = "forgetful")]
pub mod forgetful;
pub mod store;
