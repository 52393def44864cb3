//! Errors: what failed, the state after the failure, and the next action.

use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Classify, Failure};

use crate::{InvalidTask, LongWaits, StepId};

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
    /// The store did not answer in time. It is unknown whether the change was made; the call may be repeated.
    #[error(
        "the store did not answer within {after:?}: it is unknown whether the change was made; repeat the call"
    )]
    Unresponsive {
        /// The time limit of the call.
        after: Duration,
    },
    /// The store's URL is invalid.
    #[error(
        "`{url}` cannot be used as a store: {source}; expected sqlite:FILE, sqlite::memory: or postgres://USER@HOST/DATABASE"
    )]
    Address {
        /// The URL, without its password.
        url: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
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
    /// A queue or operation of the task has been removed, because it was unused. Nothing was stored. Only a caller's own
    /// transaction that began before the removal meets this error.
    #[error(
        "an unused queue or operation was removed before the task could be stored in it: submit again in a new transaction"
    )]
    LaneRemoved,
    /// A policy cannot be used.
    #[error(transparent)]
    Policies(#[from] PolicyError),
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
    #[cfg(feature = "http")]
    #[error("cannot create the HTTP client for steps: {0}")]
    Http(#[from] crate::InvalidHttpSettings),
}

/// The reason why a policy cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Policies are not compatible with the settings.
    #[error(transparent)]
    LongWaits(#[from] LongWaits),
    /// No policy has this name.
    #[error("policy `{0}` is not defined")]
    Undefined(String),
    /// The store has no policy of this number.
    #[error("policy number {0} in the store cannot be used: it does not exist")]
    Missing(i32),
    /// The store has a policy of this number that this version cannot read.
    #[error("policy number {number} in the store cannot be used: {source}")]
    Unreadable {
        /// The number.
        number: i32,
        /// The cause.
        source: serde_json::Error,
    },
}

impl Error {
    /// Returns whether a repeated call may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Store { transient: true, .. } | Self::Unresponsive { .. } | Self::QueueFull { .. }
        )
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
            holdoff_sql::Error::InvalidUrl { url, source } => Self::Address { url, source },
            holdoff_sql::Error::NewerSchema { found, known } => Self::NewerSchema { found, known },
            other => Self::Store { transient: false, source: Box::new(other) },
        }
    }
}

impl Classify for Error {
    fn classify(&self, _: &ClassMap) -> Failure {
        match self {
            Self::Store { transient: true, .. } => Failure::transient(),
            Self::Unresponsive { .. } => Failure::new(Class::Timeout),
            Self::QueueFull { retry_after, .. } => {
                Failure::new(Class::RateLimited).with_retry_after(*retry_after)
            }
            Self::Fenced { .. } => Failure::new(Class::Permanent),
            _ => Failure::permanent(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn an_invalid_store_url_keeps_its_cause() {
        let error = crate::engine::open("sqlite:x.db?mode=none").await.map(drop).unwrap_err();
        assert!(matches!(&error, Error::Address { url, .. } if url == "sqlite:x.db"), "{error}");
        assert!(error.source().is_some_and(<dyn std::error::Error>::is::<sqlx::Error>), "{error:?}");
        assert_eq!(error.classify(&ClassMap::default()), Failure::permanent());
    }

    #[test]
    fn an_unreadable_policy_keeps_its_cause() {
        let source = serde_json::from_str::<u8>("x").unwrap_err();
        let error = Error::from(PolicyError::Unreadable { number: 7, source });
        assert!(error.to_string().starts_with("policy number 7 in the store cannot be used: "), "{error}");
        assert!(error.source().is_some_and(<dyn std::error::Error>::is::<serde_json::Error>), "{error:?}");
        assert_eq!(error.classify(&ClassMap::default()), Failure::permanent());
    }

    #[cfg(feature = "http")]
    #[test]
    fn an_http_client_that_cannot_be_created_keeps_its_cause() {
        let source = "no certificates".into();
        let error = Error::from(crate::InvalidHttpSettings::Client { source });
        assert!(error.to_string().contains("cannot create the HTTPS client: no certificates;"), "{error}");
        let settings = error.source().and_then(|source| source.downcast_ref::<crate::InvalidHttpSettings>());
        assert!(settings.is_some_and(|settings| settings.source().is_some()), "{error:?}");
        assert_eq!(error.classify(&ClassMap::default()), Failure::permanent());
    }
}
