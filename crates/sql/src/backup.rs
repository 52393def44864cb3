//! Why a store cannot be copied, or brought back.

use std::path::PathBuf;

use crate::Error;

/// Why a store cannot be copied, or brought back. What was there before is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] Error),
    /// The file is not whole.
    #[error("{path} is damaged: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the check said.
        why: String,
    },
    /// The file is a database of somebody else's.
    #[error("{} holds nothing of holdoff's", .0.display())]
    NotOurs(PathBuf),
    /// The name of the file cannot be passed on.
    #[error("{0:?} is no name that SQLite takes: use letters that are UTF-8")]
    Name(PathBuf),
    /// Somebody else has it open.
    #[error("somebody else uses the store: stop every daemon on it first")]
    InUse,
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}
