//! Distributed locks: leases with fencing tokens.
//!
//! ```text
//! locks.rs        the entry point: open, acquire, poll, once, inspect     guard.rs     a held lock: renewal, release, loss
//! acquisition.rs  one acquisition: executes the decisions of wait.rs      queue.rs     the queue of this process's contenders
//! wait.rs         pure: the next action of a contender                    validity.rs  pure: when to renew, until when it is held
//! store.rs        the trait of a store: one compare-and-set per call      engine/      memory, sqlite, postgres, kubernetes, ledger
//! row.rs          pure: the state machine of one key                      notify.rs    notifications of released locks
//! store_client.rs store calls with a timeout and a circuit breaker        fence.rs     the resource's side: rejects stale tokens
//! lease.rs        locks that a remote client maintains                    settings.rs  defaults, and the section [lock]
//! ```
//!
//! Start with [`Locks::acquire`]; most callers need [`Locks::once`]. `simulation.rs` runs the pure parts against each
//! other under injected faults.
//!
//! # Invariants
//!
//! - The token of a key only grows: over release, expiry, forced release, pruning, crash, failover and restore, as long
//!   as the store's wall clock is not behind the time of a lost grant.
//! - A renewal or release names its nonce and its token. It never changes the lock of another client.
//! - While its process runs, a guard reports the end of its lease before the store can grant the lock to another client,
//!   unless the clock of a Postgres server is set forward. It reports a forced release at its next renewal.
//! - The store grants repeated requests with the same nonce only once, so a grant whose response was lost is recovered.
//! - At most one contender of a process asks the store for a key at a time. The others wait in a queue, first come,
//!   first served.
//! - A contender that stops waiting leaves no state behind. If its process is killed, or the store cannot be reached, the
//!   state in the store expires.
//! - Only an expired backoff counts as an attempt. The number of other requests between two attempts is bounded.
//!
//! # Deliberately absent
//!
//! Shared (read) locks, and protection of a resource that does not check tokens.

mod acquisition;
mod clock;
mod engine;
mod error;
mod fence;
mod guard;
mod key;
mod lease;
mod locks;
pub mod metrics;
mod notify;
mod queue;
mod row;
mod settings;
mod store;
mod store_client;
#[cfg(feature = "postgres")]
mod store_clock;
mod token;
mod validity;
mod wait;

pub use error::Error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use fence::FenceError;
#[cfg(feature = "postgres")]
pub use fence::postgres;
#[cfg(feature = "sqlite")]
pub use fence::sqlite;
pub use fence::{FencedCell, StaleToken};
pub use guard::Guard;
pub use key::{InvalidKey, LockKey};
pub use lease::{DetachedLease, Lease, Nonce, Owner};
pub use locks::{Acquire, CreateOnce, LockFilter, Locks, Once, OnceError, Polled};
pub use settings::Settings;
pub use store::{Holder, LockRecord};
pub use token::{ParseTokenError, Token};

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

/// Compiles and runs the examples of the lock page.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/lock.md")]
struct DocsLock;
