//! The errors of a store, of backup and of restore, and the test for transient errors.

use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Classify, Failure};

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database is unreachable or refused the statement.
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// The URL is not valid. Nothing was opened.
    #[error("invalid store URL `{url}`: {source}")]
    InvalidUrl {
        /// The URL, without its password.
        url: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A newer version has migrated the store, and this version cannot work beside it. Nothing was changed.
    #[error(
        "the store has schema {found}, which is newer than schema {known} of this program and not compatible with it: \
         upgrade this program"
    )]
    NewerSchema {
        /// The schema of the store.
        found: i32,
        /// The newest schema that this version knows.
        known: i32,
    },
    /// A version before the first release wrote the store, and no migration from its schema exists. Nothing was changed.
    #[error(
        "the store has schema {found}, and this program reads schema {oldest} and later: there is no migration from an \
         earlier schema; create a new store"
    )]
    OlderSchema {
        /// The schema of the store.
        found: i32,
        /// The oldest schema that this version can read.
        oldest: i32,
    },
    /// A migration could not lock its table, or another process has not ended its migration. Earlier migrations are
    /// complete; this one has changed nothing.
    #[error(
        "migration {version} has waited for {} minutes: another process migrates the store, or a transaction holds a \
         table; end that transaction (pg_stat_activity shows it), then start this program again",
        waited.as_secs() / 60
    )]
    MigrationBlocked {
        /// The version of the migration.
        version: i32,
        /// The time for which it has waited.
        waited: Duration,
    },
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Error {
    /// Creates the error for an invalid URL.
    pub(crate) fn invalid_url(url: &str, source: sqlx::Error) -> Self {
        Self::InvalidUrl { url: without_password(url), source: Box::new(source) }
    }
}

impl Classify for Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        let Self::Sql(error) = self else { return Failure::permanent() };
        error.classify(classes)
    }
}

impl Classify for BackupError {
    fn classify(&self, classes: &ClassMap) -> Failure {
        match self {
            Self::Store(error) => error.classify(classes),
            Self::InUse => Failure::new(Class::Contended),
            _ => Failure::permanent(),
        }
    }
}

/// Returns whether the operation may succeed if repeated.
pub fn is_transient(error: &sqlx::Error) -> bool {
    let class = error.classify(&ClassMap::default()).class();
    matches!(class, Class::Transient | Class::RateLimited | Class::Contended | Class::Timeout)
}

/// Returns the URL without the password and without the options, which may contain a password too. If it is in doubt where
/// the password is, everything after the scheme is masked.
pub fn without_password(url: &str) -> String {
    const MASK: &str = "…";
    if url.starts_with("sqlite:") {
        return url.split('?').next().unwrap_or_default().to_owned();
    }
    // A connection string in another form, or one with a mistake: its parts cannot be told apart.
    let sounds_secret = |text: &str| text.contains('@') || text.to_ascii_lowercase().contains("passw");
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let Some((scheme, rest)) = address.split_once("://") else {
        return if sounds_secret(url) { MASK.to_owned() } else { address.to_owned() };
    };
    // An at sign in the options may end a password with a question mark.
    if options.contains('@') || scheme.contains([':', '@']) {
        return MASK.to_owned();
    }
    // The password may contain at signs, so the last at sign ends it.
    if let Some((user, host)) = rest.rsplit_once('@') {
        let name = user.split(':').next().unwrap_or_default();
        return format!("{scheme}://{name}@{host}");
    }
    // Without an at sign, the text after a colon is a port, or a password whose end is missing.
    let authority = rest.split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_port = port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    if is_port { address.to_owned() } else { format!("{scheme}://{MASK}") }
}

/// The error of a backup or a restore. The previous data is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// There is no such file.
    #[error("there is no file {}: check the path of the backup", .0.display())]
    NoFile(PathBuf),
    /// The file is damaged.
    #[error("{path} is damaged ({why}): use another backup", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The result of the check.
        why: String,
    },
    /// The file is a database of another application.
    #[error("{} is not a holdoff store: it has no holdoff tables", .0.display())]
    NotOurs(PathBuf),
    /// The name of the file is not UTF-8, so SQLite does not accept it.
    #[error("SQLite cannot use the file name {0:?}: rename the file to valid UTF-8")]
    Name(PathBuf),
    /// The URL names a pooler in transaction mode. Nothing was changed.
    #[error("the URL names a pooler (pool_mode=transaction): use the address of the Postgres server itself")]
    Pooled,
    /// Another holdoff process has the store open.
    #[error(
        "another process uses the store: stop every holdoff process that uses it, then repeat the command"
    )]
    InUse,
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_password_removes_every_password() {
        assert_eq!(without_password("postgres://me:secret@db/x"), "postgres://me@db/x");
        assert_eq!(without_password("postgres://me:p@ss@db/x?password=again"), "postgres://me@db/x");
        assert_eq!(without_password("postgres://db/x?password=secret"), "postgres://db/x");
        assert_eq!(without_password("postgres://db/x"), "postgres://db/x");
        assert_eq!(without_password("sqlite:file.db"), "sqlite:file.db");
        for plain in [
            "sqlite:///tmp/a:b@c.db",
            "postgres:///x",
            "postgres://[::1]:5432/x",
            "postgres://a:1,b:2/x",
            "mysql",
        ] {
            assert_eq!(without_password(plain), plain);
        }
    }

    #[test]
    fn a_connection_string_in_doubt_is_masked() {
        for doubtful in [
            "postgres://me:secret",
            "postgres://me:secret/x",
            "postgres://me:se?secret@db/x",
            "postgres://me:se?x=secret@db/x",
            "postgres:me:secret@db/x",
            "postgres:/me:secret@db/x",
            "postgres//me:secret@db/x",
            "me:secret@db/x",
            "host=db user=me password=secret",
            "host=db user=me PASSWORD = 'secret'",
            "me:secret@postgres://db/x",
        ] {
            assert!(!without_password(doubtful).contains("secret"), "{}", without_password(doubtful));
        }
    }
}
