//! Errors: what failed, the state after it, and the next action.

use std::time::Duration;

use crate::{Holder, InvalidKey, Token};

/// An error of a lock operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another client held the lock at every attempt that the policy allowed. The acquisition no longer waits in the
    /// store.
    #[error("the lock is held{}: given up after {attempts} attempts and {waited:?}", by(.holder.as_deref()))]
    Contended {
        /// The holder at the time of the last request, if known.
        holder: Option<Box<Holder>>,
        /// The number of attempts, without wake-ups.
        attempts: u32,
        /// The time that the acquisition took.
        waited: Duration,
    },
    /// The deadline passed before the lock was free. The acquisition no longer waits in the store.
    #[error("the lock was not free in time, but held{}: given up after {waited:?}", by(.holder.as_deref()))]
    DeadlineExceeded {
        /// The holder at the time of the last request, if known.
        holder: Option<Box<Holder>>,
        /// The time waited.
        waited: Duration,
    },
    /// The caller cancelled the acquisition. It no longer waits in the store.
    #[error("waiting for the lock was cancelled")]
    Cancelled,
    /// The lease was not renewed in time, or an operator force-released the lock. Another client may hold it now.
    #[error("the lock with token {token} is lost: stop what it protects; its writes are refused by now")]
    Lost {
        /// The token the lock was held with.
        token: Token,
    },
    /// The store could not be reached, or it rejected the request.
    #[error("the store failed ({}): {source}", if *.transient { "it may pass by itself" } else { "it will not pass by itself" })]
    Store {
        /// Whether a later call may succeed.
        transient: bool,
        /// The store's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The key is invalid.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// The queue of this process for this key is full.
    #[error("{limit} already wait for this lock in this process: come back later")]
    TooManyWaiters {
        /// The maximum number of waiters.
        limit: usize,
    },
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
}

fn by(holder: Option<&Holder>) -> String {
    holder.map(|holder| format!(" by {}", holder.owner.name)).unwrap_or_default()
}

impl Error {
    /// Returns whether a later call may succeed.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Store { transient: true, .. }
                | Self::Contended { .. }
                | Self::DeadlineExceeded { .. }
                | Self::TooManyWaiters { .. }
        )
    }
}
