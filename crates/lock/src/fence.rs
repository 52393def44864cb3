//! Fencing at the resource: rejects the writes of a holder that does not know that its lease has expired.
//!
//! A lock alone cannot stop a process that was paused and resumes after its lease. The resource can: it stores the
//! highest token it has seen and rejects lower tokens. A row of the caller's own table needs nothing from this module,
//! only a column for the token and a condition:
//!
//! ```sql
//! update accounts set balance = $1, token = $2 where id = $3 and token <= $2
//! ```
//!
//! If no row was changed, the token is stale: stop, and write nothing else. If there is no such row (the caller writes
//! files, or changes several tables), use a fence, which is such a row in the database that the caller writes to. Call
//! `fence` in the same transaction, before the writes.

mod cell;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use crate::Token;

pub use cell::FencedCell;

/// The resource has seen a higher token, so the lock of the rejected token is lost. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("token {token} is stale: token {seen} was here already, so the lock is lost; nothing was changed")]
pub struct Stale {
    /// The rejected token.
    pub token: Token,
    /// The highest token seen.
    pub seen: Token,
}

/// An error of a fence.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The fence has seen a higher token. Roll back, and stop the work that the lock protects.
    #[error("{0}; roll back")]
    Stale(#[from] Stale),
    /// The database could not be reached, or it rejected the statement. Roll back. The fence has accepted no token.
    #[error("the database failed ({}): {source}", if *.transient { "it may pass by itself" } else { "it will not pass by itself" })]
    Store {
        /// Whether a later call may succeed.
        transient: bool,
        /// The database's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl From<sqlx::Error> for FenceError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store { transient: holdoff_sql::is_transient(&error), source: Box::new(error) }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl From<holdoff_sql::Error> for FenceError {
    fn from(error: holdoff_sql::Error) -> Self {
        match error {
            holdoff_sql::Error::Sql(error) => error.into(),
            other => Self::Store { transient: false, source: Box::new(other) },
        }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
/// Converts a token to a column value. Tokens do not use the sign bit.
fn number(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn verdict(token: Token, seen: i64) -> Result<(), FenceError> {
    let seen = Token::new(u64::try_from(seen).unwrap_or_default());
    if seen > token { Err(Stale { token, seen }.into()) } else { Ok(()) }
}

#[cfg(all(feature = "postgres", feature = "sqlite"))]
#[cfg(test)]
mod tests;
