//! **Crash-safe storage.** Stores in files, and their directories.
//!
//! - [`store`]: a redb file with a format version and a random incarnation, drawn at its creation. A store whose sync has
//!   failed is not opened again.
//! - [`directory`]: directories that only their owner can read, with entries that survive a crash.
//! - [`DiskError`]: the reason why a disk has failed, with its source.
//! - `faulty` (a feature): a disk in memory that loses unsynced writes, or parts of them.

pub mod directory;
mod error;
#[cfg(feature = "faulty")]
pub mod faulty;
pub mod store;
mod sync_mark;

pub use error::DiskError;
