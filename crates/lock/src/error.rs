//! Errors: what failed, the state after it, and the next action.

use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Classify, Failure};

use crate::{Holder, InvalidKey, Token};

/// An error of a lock operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another client held the lock at every attempt that the policy allowed. The acquisition no longer waits in the
    /// store.
    #[error("the lock is held{}: gave up after {attempts} attempts and {waited:?}; wait longer, or retry later", by(.holder.as_deref()))]
    Contended {
        /// The holder at the time of the last request, if known.
        holder: Option<Box<Holder>>,
        /// The number of attempts, without wake-ups.
        attempts: u32,
        /// The time that the acquisition took.
        waited: Duration,
    },
    /// The deadline passed before the lock was free. The acquisition no longer waits in the store.
    #[error("the deadline passed after {waited:?} while the lock was held{}; wait longer, or retry later", by(.holder.as_deref()))]
    DeadlineExceeded {
        /// The holder at the time of the last request, if known.
        holder: Option<Box<Holder>>,
        /// The time waited.
        waited: Duration,
    },
    /// The caller cancelled the acquisition. It no longer waits in the store.
    #[error("the acquisition was cancelled")]
    Cancelled,
    /// The lease was not renewed in time, or an operator force-released the lock. Another client may hold it now.
    #[error("the lock with token {token} is lost, and another client may hold it: stop the protected work")]
    Lost {
        /// The token the lock was held with.
        token: Token,
    },
    /// The store could not be reached, or it rejected the request.
    #[error("the store of the locks failed ({}): {source}", if *.transient { "transient: retry" } else { "permanent: a retry will not help" })]
    Store {
        /// Whether a later call may succeed.
        transient: bool,
        /// The store's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The key is invalid.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// The floor leaves no room for later tokens. Nothing was changed.
    #[error(
        "the floor {floor} is above {}, the highest floor: pass the highest token that the resource has seen",
        Token::MAX_FLOOR
    )]
    FloorTooHigh {
        /// The requested floor.
        floor: Token,
    },
    /// The queue of this process for this key is full.
    #[error("the queue for this lock in this process is full ({limit} waiters): retry later")]
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
    /// Returns the error of a store that failed, or that could not be reached.
    pub(crate) fn store(
        transient: bool,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Store { transient, source: source.into() }
    }

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

impl Classify for Error {
    fn classify(&self, _: &ClassMap) -> Failure {
        match self {
            Self::Contended { .. } | Self::DeadlineExceeded { .. } => Failure::new(Class::Contended),
            Self::TooManyWaiters { .. } => Failure::new(Class::Contended).local(),
            Self::Lost { .. } => Failure::new(Class::Superseded).not_repeatable(),
            Self::Store { transient: true, .. } => Failure::transient(),
            _ => Failure::permanent(),
        }
    }
}
