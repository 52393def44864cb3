//! Errors: what failed, the state after the failure, and the next action.

use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Classify, Failure};

use crate::{InvalidTask, StepId};

/// An error of durable work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be reached, or returned an error. It is unknown whether the last change was made, unless
    /// the source says otherwise; every call may be repeated.
    #[error("the store failed ({}): {source}", if *.transient { "transient" } else { "permanent" })]
    Store {
        /// Whether a repeated call may succeed.
        transient: bool,
        /// The store's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store's URL is invalid.
    #[error(
        "`{url}` cannot be used as a store: {why}; expected sqlite:FILE, sqlite::memory: or postgres://USER@HOST/DATABASE"
    )]
    Address {
        /// The URL, without its password.
        url: String,
        /// The reason.
        why: String,
    },
    /// The store was written by a newer version that is not compatible with this one. Nothing was changed.
    #[error(
        "the store has schema {found}, which this version (schema {known}) cannot work beside: upgrade this program"
    )]
    NewerSchema {
        /// The schema that was found.
        found: i32,
        /// The newest schema that this version knows.
        known: i32,
    },
    /// The task is invalid. Nothing was stored.
    #[error(transparent)]
    Invalid(#[from] InvalidTask),
    /// The queue is full. Nothing was stored; submit again after `retry_after`.
    #[error(
        "queue `{queue}` is full: {depth} steps wait in it, and the limit is {limit} (work.max_depth); submit again after {retry_after:?}"
    )]
    QueueFull {
        /// The queue.
        queue: String,
        /// The approximate number of waiting steps.
        depth: u64,
        /// The limit (`work.max_depth`).
        limit: u64,
        /// The time to wait before the next submission.
        retry_after: Duration,
    },
    /// A policy is not compatible with these settings.
    #[error("{0}")]
    Policies(String),
    /// The task or step does not exist, or its state does not permit the action. Nothing was changed.
    #[error("{0}")]
    NotPossible(String),
    /// The step does not run under this lease number: it was rescued, claimed again or cancelled, or it has ended. The
    /// report changed nothing.
    #[error(
        "step {step} is no longer held under lease {lease}: the report was rejected and changed nothing; claim the step again"
    )]
    Fenced {
        /// The step.
        step: StepId,
        /// The lease number of the report.
        lease: u64,
    },
    /// The HTTP client could not be created.
    #[error("cannot create the HTTP client for steps: {0}")]
    Http(String),
}

impl Error {
    /// Returns whether a repeated call may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store { transient: true, .. } | Self::QueueFull { .. })
    }

    /// Wraps an error of the store, and classifies it as transient or not.
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
            holdoff_sql::Error::InvalidUrl { url, why } => Self::Address { url, why },
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
