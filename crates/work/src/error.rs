//! What can go wrong, what is true then, and what to do about it.

use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Failure};
use holdoff_retry::Classify;

use crate::{InvalidTask, StepId};

/// What went wrong with durable work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be reached, or refused. Whether the last change was made is unknown unless it
    /// says otherwise; every call may be repeated.
    #[error("the store failed ({}): {source}", if *.transient { "it may pass by itself" } else { "it will not pass by itself" })]
    Store {
        /// Whether it may work next time.
        transient: bool,
        /// What the store said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store's address cannot be used.
    #[error(
        "`{url}` cannot be used as a store: {why}; expected sqlite:FILE, sqlite::memory: or postgres://USER@HOST/DATABASE"
    )]
    Address {
        /// The address, without its password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store was written by a newer version that this one cannot work beside. Nothing was changed.
    #[error(
        "the store has schema {found}, which this version (schema {known}) cannot work beside: upgrade this program"
    )]
    NewerSchema {
        /// The schema that was found.
        found: i32,
        /// The newest schema this version knows.
        known: i32,
    },
    /// The task cannot be taken in as it is. Nothing was stored.
    #[error(transparent)]
    Invalid(#[from] InvalidTask),
    /// Too many steps wait in the queue. Nothing was stored; come back later.
    #[error(
        "queue `{queue}` is full: {depth} steps wait in it, and {limit} may; try again in {retry_after:?}"
    )]
    QueueFull {
        /// The queue.
        queue: String,
        /// About how many wait.
        depth: u64,
        /// How many may.
        limit: u64,
        /// When to come back.
        retry_after: Duration,
    },
    /// A policy cannot be used with these settings.
    #[error("{0}")]
    Policies(String),
    /// There is no such task or step, or it is not in a state in which this can be done. Nothing was changed.
    #[error("{0}")]
    NotPossible(String),
    /// Somebody else has the step now, or it is over: the report changed nothing.
    #[error("step {step} is no longer yours: lease {lease} is over, and the report changed nothing")]
    Fenced {
        /// The step.
        step: StepId,
        /// The lease that is over.
        lease: u64,
    },
    /// An HTTP client could not be made.
    #[error("HTTP steps cannot be run: {0}")]
    Http(String),
}

impl Error {
    /// Whether it may work next time.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store { transient: true, .. } | Self::QueueFull { .. })
    }

    /// What the store said, judged by the tables in force.
    pub(crate) fn store(error: sqlx::Error) -> Self {
        let transient = holdoff_sql::is_transient(&error);
        Self::Store { transient, source: Box::new(error) }
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::store(error)
    }
}

impl From<holdoff_sql::Error> for Error {
    fn from(error: holdoff_sql::Error) -> Self {
        match error {
            holdoff_sql::Error::Sql(error) => Self::store(error),
            holdoff_sql::Error::Address { url, why } => Self::Address { url, why },
            holdoff_sql::Error::NewerSchema { found, known } => Self::NewerSchema { found, known },
            other => Self::Store { transient: false, source: Box::new(other) },
        }
    }
}

impl Classify for Error {
    fn classify(&self, _: &ClassMap) -> Failure {
        match self {
            Self::Store { transient: true, .. } => Failure::transient(),
            Self::QueueFull { retry_after, .. } => {
                Failure::new(Class::RateLimited).with_retry_after(*retry_after)
            }
            Self::Fenced { .. } => Failure::new(Class::Permanent),
            _ => Failure::permanent(),
        }
    }
}
