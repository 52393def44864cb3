//! The errors of backup and restore.

use std::path::PathBuf;

use crate::Error;

/// The error of a backup or a restore. The previous data is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The file is damaged.
    #[error("{path} is damaged: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The result of the check.
        why: String,
    },
    /// The file is a database of another application.
    #[error("{} holds nothing of holdoff's", .0.display())]
    NotOurs(PathBuf),
    /// The name of the file is not UTF-8, so SQLite does not accept it.
    #[error("{0:?} is no name that SQLite takes: use letters that are UTF-8")]
    Name(PathBuf),
    /// Another process has the store open.
    #[error("somebody else uses the store: stop every daemon on it first")]
    InUse,
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}
