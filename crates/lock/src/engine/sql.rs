//! The code that the SQL engines share: the conversion of rows and errors.

use std::time::Duration;

use holdoff_policy::as_micros_i64;
use uuid::Uuid;

use crate::key::to_hex;
use crate::{Error, Holder, LockRecord, Nonce, Owner, Token};

/// The maximum number of recorded and counted waiters of a lock. A waiter beyond it asks again like the others.
pub(super) const MAX_WAITERS: i64 = 4096;

/// A lock, as it is read: namespace, key, digest, token, the holder's nonce and name, microseconds since its grant and
/// until its lease expires, and the number of waiters.
pub(super) type LockColumns = (String, String, Vec<u8>, i64, Option<Uuid>, Option<String>, i64, i64, i64);

pub(super) fn record(row: LockColumns) -> LockRecord {
    let (namespace, key, digest, token, nonce, owner, held_us, ends_us, waiting) = row;
    LockRecord {
        namespace,
        key,
        digest: to_hex(&digest),
        token: self::token(token),
        holder: holder(nonce, owner, token, held_us, ends_us),
        waiting: count(waiting),
    }
}

/// Returns the holder of a lock; `None` if there is none, or its lease has expired.
pub(super) fn holder(
    nonce: Option<Uuid>,
    owner: Option<String>,
    token: i64,
    held_us: i64,
    ends_us: i64,
) -> Option<Holder> {
    let nonce = Nonce::new(nonce.filter(|_| ends_us > 0)?);
    Some(Holder {
        owner: Owner { nonce, name: owner.unwrap_or_default() },
        token: self::token(token),
        held_for: from_micros(held_us),
        ends_in: from_micros(ends_us),
    })
}

/// Returns whole microseconds, limited to a number that the databases can represent.
pub(super) fn micros(duration: Duration) -> i64 {
    /// A thousand years: added to any time, the sum is still a valid time.
    const MAX_MICROS: i64 = 1000 * 365 * 24 * 3600 * 1_000_000;
    as_micros_i64(duration).min(MAX_MICROS)
}

pub(super) fn from_micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

pub(super) fn count(number: i64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

/// Converts a column value to a token. Tokens start at 0 and do not use the sign bit.
pub(super) fn token(number: i64) -> Token {
    Token::new(u64::try_from(number).unwrap_or_default())
}

pub(super) fn number(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// Replaces zero bytes, which the databases do not accept in text.
pub(super) fn text(any: &str) -> String {
    any.replace('\0', "\u{fffd}")
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Store { transient: holdoff_sql::is_transient(&error), source: Box::new(error) }
    }
}

impl From<holdoff_sql::Error> for Error {
    fn from(error: holdoff_sql::Error) -> Self {
        match error {
            holdoff_sql::Error::Sql(error) => error.into(),
            holdoff_sql::Error::InvalidUrl { .. } => Self::Settings(error.to_string()),
            other => Self::Store { transient: false, source: Box::new(other) },
        }
    }
}
