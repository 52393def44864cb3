//! The common parts of the SQLite and Postgres stores.
//!
//! Several components (work, locks) keep their tables side by side in one file or database. This crate opens
//! the database, migrates the tables of a component, provides the time, and detects writes of other
//! processes.
//!
//! # Invariants
//!
//! - Each component records its migrations in its own table: no component sees, or waits for, the versions of
//!   another.
//! - Migrations of any number of components and processes run one after the other.
//! - A SQLite file has one clock for all components: it never goes below the largest time that any component
//!   has written.
//! - A notification is a hint: it may be missed, and it may arrive without a change.
//!
//! # Deliberately absent
//!
//! Tables, and anything that only one component needs.

mod error;
mod migration;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use error::{BackupError, Error, is_transient, without_password};
pub use migration::{Component, Migration, SchemaChange};

/// Returns a random duration between this and twice this, so that processes do not repeat a statement at the same time.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn jittered(delay: std::time::Duration) -> std::time::Duration {
    delay + delay.mul_f64(fastrand::Rng::new().f64())
}
