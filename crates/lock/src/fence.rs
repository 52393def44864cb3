//! The resource's side: what refuses a holder that does not know that its lease is over.
//!
//! A lock alone cannot stop a process that was paused and goes on after its lease. The resource can: it remembers the
//! highest token it has seen, and refuses lower ones. A row of the caller's own table needs nothing from here, only a
//! column for the token and a clause:
//!
//! ```sql
//! update accounts set balance = $1, token = $2 where id = $3 and token <= $2
//! ```
//!
//! No row was changed: the token is stale; stop, and write nothing else. Where there is no such row (files are written,
//! several tables change), a fence is one, in the database that is written to: `fence` in the same transaction, before
//! the writes.

mod cell;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use crate::Token;

pub use cell::FencedCell;

/// Somebody with a higher token was here: the lock that this token came with is lost. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("token {token} is stale: token {seen} was here already, so the lock is lost; nothing was changed")]
pub struct Stale {
    /// The one that was refused.
    pub token: Token,
    /// The highest one seen.
    pub seen: Token,
}

/// Why a fence did not let somebody through.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// Somebody with a higher token has been here: roll back, and stop what the lock protects.
    #[error("{0}; roll back")]
    Stale(#[from] Stale),
    /// The database could not be reached, or refused: roll back. Nobody was let through.
    #[error("the database failed ({}): {source}", if *.transient { "it may pass by itself" } else { "it will not pass by itself" })]
    Store {
        /// Whether it may work next time.
        transient: bool,
        /// What the database said.
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
/// Tokens have the sign's bit to spare.
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
