//! One at a time: leases with fencing tokens.
//!
//! ```text
//! locks.rs     the door: acquire, try, poll, once, inspect      guard.rs   what a holder has, and how it is lost
//! store.rs     what a store must do: one compare-and-set        engine/    memory, sqlite, postgres, kubernetes
//! row.rs       the same, as a pure model of one key             wakes.rs   hearing that a lock was let go
//! fence.rs     the resource's side: refusing stale tokens
//! ```
//!
//! # Invariants
//!
//! - A token only grows for a key: over release, expiry, forced release, pruning, and restore.
//! - Whoever renews or releases names its nonce and its token; another's lock is never touched.
//! - A guard says that it is lost before anybody else can have been granted the lock, on any clock.
//! - Asking twice with one nonce is granted once: an answer that was lost is found again.
//!
//! # Deliberately absent
//!
//! Shared (read) locks, and protection of a resource that does not look at tokens.

mod engine;
mod error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod fence;
mod key;
mod owner;
mod store;
mod token;
mod wakes;

pub use error::Error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use fence::FenceError;
#[cfg(feature = "postgres")]
pub use fence::postgres;
#[cfg(feature = "sqlite")]
pub use fence::sqlite;
pub use key::{InvalidKey, Key};
pub use owner::{Nonce, Owner};
pub use store::{Holder, LockRecord};
pub use token::Token;
