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
        let transient = is_transient(&error);
        Self::Store { transient, source: Box::new(error) }
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::store(error)
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

fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| is_transient_code(&code)),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed => true,
        _ => false,
    }
}

/// A SQLSTATE has five characters; SQLite's codes are numbers, of which the low byte is the kind.
fn is_transient_code(code: &str) -> bool {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    if code.len() == 5 && !code.starts_with("00") {
        // What cannot be told from the table alone: a statement that was cut off may work next time.
        let class = ClassMap::default().sqlstate(code);
        let passes = [Class::Transient, Class::RateLimited, Class::Contended, Class::Timeout];
        return code == "57014" || passes.contains(&class);
    }
    code.parse::<u32>().is_ok_and(|code| [BUSY, LOCKED].contains(&(code & 0xff)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_deadlocks_and_restarts_pass_by_themselves() {
        for code in ["40001", "40P01", "55P03", "57P01", "57P03", "08006", "5", "517", "6", "261"] {
            assert!(is_transient_code(code), "{code}");
        }
        for code in ["42P01", "23505", "22003", "1", "19", "2067"] {
            assert!(!is_transient_code(code), "{code}");
        }
    }
}
