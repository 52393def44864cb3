//! What can go wrong, what is true then, and what to do about it.

use std::time::Duration;

use crate::{Holder, InvalidKey, Token};

/// What went wrong with a lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else held it during every attempt that the policy allowed. Nothing of this one waits any more.
    #[error("the lock is held{}: given up after {attempts} attempts and {waited:?}", by(.holder.as_deref()))]
    Contended {
        /// Who held it when it was last asked for.
        holder: Option<Box<Holder>>,
        /// How often it was asked for, wake-ups apart.
        attempts: u32,
        /// How long that took.
        waited: Duration,
    },
    /// The time was up before the lock was free. Nothing of this one waits any more.
    #[error("the lock was not free in time, but held{}: given up after {waited:?}", by(.holder.as_deref()))]
    DeadlineExceeded {
        /// Who held it when it was last asked for.
        holder: Option<Box<Holder>>,
        /// How long was waited.
        waited: Duration,
    },
    /// The caller wants it no more. Nothing of this one waits any more.
    #[error("waiting for the lock was cancelled")]
    Cancelled,
    /// The lease could not be renewed in time, or somebody took the lock by force: it may be another's now.
    #[error("the lock with token {token} is lost: stop what it protects; its writes are refused by now")]
    Lost {
        /// The token it was held with.
        token: Token,
    },
    /// The store could not be reached, or refused.
    #[error("the store failed ({}): {source}", if *.transient { "it may pass by itself" } else { "it will not pass by itself" })]
    Store {
        /// Whether it may work next time.
        transient: bool,
        /// What the store said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The key cannot be used.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// So many wait for this key in this process that one more may not.
    #[error("{limit} already wait for this lock in this process: come back later")]
    TooManyWaiters {
        /// How many may.
        limit: usize,
    },
    /// The settings cannot be used.
    #[error("{0}")]
    Settings(String),
}

fn by(holder: Option<&Holder>) -> String {
    holder.map(|holder| format!(" by {}", holder.owner.name)).unwrap_or_default()
}

impl Error {
    /// Whether it may work next time.
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
