//! The errors of a store, of backup and of restore, and the test for transient errors.

use std::path::PathBuf;

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

/// Returns the URL without the password and without the options, which may contain a password too.
pub fn without_password(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // The password may contain at signs, so the last at sign ends it.
    let Some((user, host)) = rest.rsplit_once('@') else { return url.to_owned() };
    let name = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{name}@{host}")
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
    }
}
