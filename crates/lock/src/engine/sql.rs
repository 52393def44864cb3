//! What the engines on SQL share: how rows become records, and errors errors.

use std::fmt::Write as _;
use std::time::Duration;

use uuid::Uuid;

use crate::{Error, Holder, LockRecord, Nonce, Owner, Token};

/// Beyond so many, those who wait for a lock are neither noted nor counted: they ask again like all others.
pub(super) const MOST_WAITERS: i64 = 4096;

/// A lock as it is read: namespace, key, digest, token, the holder's nonce and name, microseconds since it was granted
/// and until its lease ends, and how many wait.
pub(super) type Row = (String, String, Vec<u8>, i64, Option<Uuid>, Option<String>, i64, i64, i64);

pub(super) fn record(row: Row) -> LockRecord {
    let (namespace, key, digest, token, nonce, owner, held_us, ends_us, waiting) = row;
    LockRecord {
        namespace,
        key,
        digest: hex(&digest),
        token: self::token(token),
        holder: holder(nonce, owner, token, held_us, ends_us),
        waiting: count(waiting),
    }
}

/// Who has a lock; nothing if nobody, or if the lease is over.
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
        held_for: span(held_us),
        ends_in: span(ends_us),
    })
}

/// Whole microseconds, as many as the databases can count.
pub(super) fn micros(span: Duration) -> i64 {
    /// A thousand years: added to any time, it stays one.
    const LONGEST: i64 = 1000 * 365 * 24 * 3600 * 1_000_000;
    i64::try_from(span.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

pub(super) fn span(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

pub(super) fn count(number: i64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

/// Tokens are counted from 0, and have the sign's bit to spare.
pub(super) fn token(number: i64) -> Token {
    Token::new(u64::try_from(number).unwrap_or_default())
}

pub(super) fn number(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(2 * digest.len()), |mut digits, byte| {
        // Writing into a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// Text that a database takes: none of them likes a zero byte.
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
            holdoff_sql::Error::Address { .. } => Self::Settings(error.to_string()),
            other => Self::Store { transient: false, source: Box::new(other) },
        }
    }
}
