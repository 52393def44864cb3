//! Distributed locks: leases with fencing tokens.
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
//! Start with [`Locks::acquire`]; most callers need [`Locks::once`]. `simulation.rs` runs the pure parts against each
//! other under injected faults.
//!
//! # Invariants
//!
//! - The token of a key only grows: over release, expiry, forced release, pruning, and restore.
//! - A renewal or release names its nonce and its token. It never changes the lock of another client.
//! - A guard reports its loss before the store can grant the lock to another client, on any clock.
//! - The store grants repeated requests with the same nonce only once, so a grant whose response was lost is recovered.
//! - At most one contender of a process asks the store for a key at a time. The others wait in a queue, first come,
//!   first served.
//! - A contender that stops waiting, for any reason, leaves no state behind. If the store cannot be reached, the state
//!   in it expires.
//! - Only an expired backoff counts as an attempt. The number of other requests between two attempts is bounded.
//!
//! # Deliberately absent
//!
//! Shared (read) locks, and protection of a resource that does not check tokens.

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

/// Compiles and runs the examples of the lock page.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/lock.md")]
struct DocsLock;
