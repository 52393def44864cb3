//! The engines: implementations of [`LeaseStore`](crate::store::LeaseStore), one module for each kind of store.
//!
//! ```text
//! memory.rs       the pure model behind a mutex; the simplest example
//! sqlite.rs       a file of one machine               ┐ sql.rs: rows and errors
//! postgres.rs     a database                          ┘
//! kubernetes.rs   Leases of a cluster                 ┐ optimistic.rs: observed leases, unknown outcomes
//! ledger.rs       rows of a ledger                    ┘
//! ```
//!
//! `docs/lock.md` says how to add an engine. `tests/it/conformance` runs against every engine.

#[cfg(feature = "kubernetes")]
pub(crate) mod kubernetes;
#[cfg(feature = "ledger")]
pub(crate) mod ledger;
pub(crate) mod memory;
#[cfg(any(feature = "kubernetes", feature = "ledger"))]
mod optimistic;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(all(feature = "ledger", feature = "postgres", feature = "sqlite"))]
#[cfg(test)]
mod tests;

/// Returns the backoff between two watches of a store. In the meantime waiters poll the store themselves.
#[cfg(any(feature = "kubernetes", feature = "ledger"))]
fn watch_backoff() -> holdoff_retry::Backoff {
    use std::time::Duration;

    let (first, cap) = (Duration::from_millis(100), Duration::from_secs(30));
    holdoff_retry::Backoff::exponential(first, cap, holdoff_policy::Jitter::Full)
}
