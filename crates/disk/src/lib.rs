//! **Crash-safe storage.** Databases in files, and their directories.
//!
//! - [`database`]: a redb file that can be opened again after a crash at any moment of its creation.
//! - [`store`]: such a file with a format version and a random incarnation, drawn at its creation.
//! - [`folder`]: directories that only their owner can read, with entries that survive a crash.
//! - `forgetful` (a feature): a disk in memory that loses unsynced writes, or parts of them.

pub mod database;
pub mod folder;
#[cfg(feature = "forgetful")]
pub mod forgetful;
pub mod store;
