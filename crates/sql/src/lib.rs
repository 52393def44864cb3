//! What the stores on SQLite and Postgres share.
//!
//! Several components (work, locks) keep their tables in one file or one database, beside each other. Here is how all
//! of them open it, bring their own tables up to date, tell the time, and hear that another process has written.
//!
//! # Invariants
//!
//! - A component counts its migrations in a table of its own: none sees, or waits for, another's versions.
//! - Migrations of any number of components and processes run one after the other.
//! - A SQLite file has one clock, for all components: it never goes below the largest time anybody has written.
//! - Whatever is heard is a hint: it may be missed, and may be heard without cause.
//!
//! # Deliberately absent
//!
//! Tables, and anything that one component alone needs.

mod backup;
#[cfg(feature = "sqlite")]
mod clock;
mod error;
mod migration;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use backup::BackupError;
pub use error::{Error, is_transient, without_password};
pub use migration::{Component, Migration};
