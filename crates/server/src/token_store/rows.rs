//! Conversion of rows, which both databases share.

use holdoff_work::Moment;

use super::{AuditEntry, Result, StoredToken, TokenRecord, TokenScope};
use crate::Error;

/// A row with named columns.
pub(super) trait Columns {
    const NAMES: &'static [&'static str];

    /// Returns the column list of a query.
    fn columns() -> String {
        Self::NAMES.join(", ")
    }
}

/// Defines a row: its column list, and its reader, which finds each column by its name.
macro_rules! row {
    ($(#[$meta:meta])* $row:ident { $( $column:ident: $type:ty ),+ $(,)? }) => {
        $(#[$meta])*
        pub(super) struct $row { $( $column: $type ),+ }

        impl Columns for $row {
            const NAMES: &'static [&'static str] = &[$( stringify!($column) ),+];
        }

        impl<'r, R: sqlx::Row> sqlx::FromRow<'r, R> for $row
        where
            &'static str: sqlx::ColumnIndex<R>,
            $( $type: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database> ),+
        {
            fn from_row(row: &'r R) -> sqlx::Result<Self> {
                Ok(Self { $( $column: row.try_get(stringify!($column))? ),+ })
            }
        }
    };
}

row! {
    /// A token.
    TokenRow {
        id: String,
        name: String,
        scope: String,
        namespace: Option<String>,
        created_at: i64,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
        used_at: Option<i64>,
        session_of: Option<String>,
    }
}

row! {
    /// The secret part of a token, and the current time, beside the columns of [`TokenRow`].
    SecretRow { hash: Vec<u8>, now: i64 }
}

row! {
    /// An entry of the audit log.
    EntryRow {
        id: i64,
        at: i64,
        actor: String,
        token: Option<String>,
        action: String,
        namespace: Option<String>,
        object: String,
        count: i64,
        request: Option<String>,
    }
}

pub(super) fn token(row: TokenRow) -> Result<TokenRecord> {
    let scope: TokenScope = row.scope.parse().map_err(|source| Error::TokenStore {
        transient: false,
        source: Box::<super::UnknownScope>::new(source),
    })?;
    let moment = |at: Option<i64>| at.map(Moment::from_micros);
    Ok(TokenRecord {
        id: row.id,
        name: row.name,
        scope,
        namespace: row.namespace,
        created_at: Moment::from_micros(row.created_at),
        expires_at: moment(row.expires_at),
        revoked_at: moment(row.revoked_at),
        used_at: moment(row.used_at),
        session_of: row.session_of,
    })
}

pub(super) fn stored(row: TokenRow, secret: SecretRow) -> Result<StoredToken> {
    Ok(StoredToken { record: token(row)?, hash: secret.hash, now: Moment::from_micros(secret.now) })
}

pub(super) fn entry(row: EntryRow) -> AuditEntry {
    let EntryRow { id, at, actor, token, action, namespace, object, count, request } = row;
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
    sql_error(holdoff_sql::Error::InvalidUrl { url, source: why.into() })
}
