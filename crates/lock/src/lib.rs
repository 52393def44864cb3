//! One at a time: leases with fencing tokens.
//!
//! ```text
//! locks.rs     the door: acquire, try, poll, once, inspect      guard.rs   what a holder has, and how it is lost
//! line.rs      those of one process stand in line               pursuit.rs one acquisition: carries out what wait.rs says
//! wait.rs      pure: what to do next while it is not ours       tenure.rs  pure: when to renew, until when it is ours
//! store.rs     what a store must do: one compare-and-set        engine/    memory, sqlite, postgres, kubernetes, ledger
//! row.rs       the same, as a pure model of one key             wakes.rs   hearing that a lock was let go
//! asking.rs    asking a store: time limits and the breaker      fence/     the resource's side: refusing stale tokens
//! lease.rs     locks that somebody else keeps                   settings/  the file's [lock]
//! ```
//!
//! [`Locks::acquire`] is the whole lesson; [`Locks::once`] is what most want a lock for. `simulation.rs` runs the pure
//! parts against each other, with everything that can go wrong.
//!
//! # Invariants
//!
//! - A token only grows for a key: over release, expiry, forced release, pruning, and restore.
//! - Whoever renews or releases names its nonce and its token; another's lock is never touched.
//! - A guard says that it is lost before anybody else can have been granted the lock, on any clock.
//! - Asking twice with one nonce is granted once: an answer that was lost is found again.
//! - Of one process at most one asks the store for a key at a time; the others stand in line, first come first served.
//! - Whoever stops waiting, however that comes about, leaves nothing behind; what a store that is away still knows of
//!   it ends by itself.
//! - Only an expired backoff is an attempt. What is not one is bounded between two that are.
//!
//! # Deliberately absent
//!
//! Shared (read) locks, and protection of a resource that does not look at tokens.

mod asking;
mod clock;
mod engine;
mod error;
mod fence;
mod guard;
mod key;
mod lease;
mod line;
mod locks;
pub mod metrics;
mod owner;
mod pursuit;
mod row;
mod settings;
mod store;
mod tenure;
mod token;
mod wait;
mod wakes;

pub use error::Error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use fence::FenceError;
#[cfg(feature = "postgres")]
pub use fence::postgres;
#[cfg(feature = "sqlite")]
pub use fence::sqlite;
pub use fence::{FencedCell, Stale};
pub use guard::Guard;
pub use key::{InvalidKey, Key};
pub use lease::{Handover, Lease};
pub use locks::{Acquire, Filter, Locks, MakeOnce, Once, OnceError, Polled};
pub use owner::{Nonce, Owner};
pub use settings::Settings;
pub use store::{Holder, LockRecord};
pub use token::Token;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

/// The page for people, compiled and run.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/lock.md")]
struct DocsLock;
