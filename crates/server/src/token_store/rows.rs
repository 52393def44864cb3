//! Conversion of rows, which both databases share.

use holdoff_work::Moment;

use super::{AuditEntry, Result, StoredToken, TokenRecord, TokenScope};
use crate::Error;

/// The columns of a token, in the order of every query.
pub(super) const TOKEN: &str =
    "id, name, scope, namespace, created_at, expires_at, revoked_at, used_at, session_of";

/// The columns of an entry, in the order of every query.
pub(super) const ENTRY: &str = "id, at, actor, token, action, namespace, object, count, request";

pub(super) type TokenRow =
    (String, String, String, Option<String>, i64, Option<i64>, Option<i64>, Option<i64>, Option<String>);

/// The columns of a token, its hash, and the current time.
pub(super) type StoredRow = (
    String,
    String,
    String,
    Option<String>,
    i64,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<String>,
    Vec<u8>,
    i64,
);

pub(super) type EntryRow =
    (i64, i64, String, Option<String>, String, Option<String>, String, i64, Option<String>);

pub(super) fn token(row: TokenRow) -> Result<TokenRecord> {
    let (id, name, scope, namespace, created_at, expires_at, revoked_at, used_at, session_of) = row;
    let scope: TokenScope = scope.parse().map_err(|source| Error::TokenStore {
        transient: false,
        source: Box::<super::UnknownScope>::new(source),
    })?;
    let moment = |at: Option<i64>| at.map(Moment::from_micros);
    Ok(TokenRecord {
        id,
        name,
        scope,
        namespace,
        created_at: Moment::from_micros(created_at),
        expires_at: moment(expires_at),
        revoked_at: moment(revoked_at),
        used_at: moment(used_at),
        session_of,
    })
}

pub(super) fn stored(row: StoredRow) -> Result<StoredToken> {
    let (id, name, scope, namespace, created, expires, revoked, used, session_of, hash, now) = row;
    let record = token((id, name, scope, namespace, created, expires, revoked, used, session_of))?;
    Ok(StoredToken { record, hash, now: Moment::from_micros(now) })
}

pub(super) fn entry(row: EntryRow) -> AuditEntry {
    let (id, at, actor, token, action, namespace, object, count, request) = row;
    let at = Moment::from_micros(at);
    AuditEntry { id, at, actor, token, action, namespace, object, count, request }
}

/// Returns a count as a database integer.
pub(super) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts a database error.
pub(super) fn sql_error(error: impl Into<holdoff_sql::Error>) -> Error {
    let error = error.into();
    let transient = matches!(&error, holdoff_sql::Error::Sql(sql) if holdoff_sql::is_transient(sql));
    Error::TokenStore { transient, source: Box::new(error) }
}

/// Returns the error for an address that is no store's.
pub(super) fn unknown_scheme(url: &str) -> Error {
    let why = "the scheme is unknown; expected sqlite:FILE, sqlite::memory: or postgres://USER@HOST/DATABASE";
    let url = holdoff_sql::without_password(url);
    sql_error(holdoff_sql::Error::InvalidUrl { url, why: why.to_owned() })
}
