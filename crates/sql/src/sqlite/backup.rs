//! Copies a file while other connections write it, and checks a file before a restore replaces it.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};

use crate::{BackupError, Error, is_transient};

const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Tables that contain rows even in an unused store.
const ALWAYS_FILLED: [&str; 6] = [
    "holdoff_migrations",
    "holdoff_lock_migrations",
    "holdoff_clock",
    "holdoff_lock_token_base",
    "holdoff_server_migrations",
    "holdoff_fence_migrations",
];

/// Returns the path of the file in this URL.
pub fn file_of(url: &str) -> Result<PathBuf, Error> {
    let options = SqliteConnectOptions::from_str(url).map_err(|why| Error::invalid_url(url, why))?;
    Ok(options.get_filename().to_owned())
}

/// Copies a consistent snapshot of a file into an empty file while other connections write, and checks the
/// copy.
pub async fn copy(from: &Path, into: &Path) -> Result<(), BackupError> {
    let mut connection = open(from, false).await?;
    let into_text = into.to_str().ok_or_else(|| BackupError::Name(into.to_owned()))?;
    sqlx::query("vacuum into ?1").bind(into_text).execute(&mut connection).await?;
    connection.close().await?;
    check(into).await
}

/// Checks that a file is intact and a holdoff store.
pub async fn check(path: &Path) -> Result<(), BackupError> {
    if !path.exists() {
        return Err(BackupError::NoFile(path.to_owned()));
    }
    let damaged = |error| match error {
        sqlx::Error::Database(error) => {
            BackupError::Damaged { path: path.to_owned(), why: error.message().to_owned() }
        }
        other => other.into(),
    };
    let mut connection = open(path, true).await.map_err(damaged)?;
    let asked = sqlx::query_scalar("pragma integrity_check(1)").fetch_one(&mut connection).await;
    let said: String = asked.map_err(damaged)?;
    if said != "ok" {
        return Err(BackupError::Damaged { path: path.to_owned(), why: said });
    }
    let is_ours = !tables(&mut connection).await?.is_empty();
    connection.close().await?;
    if is_ours { Ok(()) } else { Err(BackupError::NotOurs(path.to_owned())) }
}

/// Returns whether the store in this file was never used.
pub async fn is_empty(path: &Path) -> Result<bool, BackupError> {
    if !path.exists() || path.metadata().is_ok_and(|found| found.len() == 0) {
        return Ok(true);
    }
    let mut connection = open(path, false).await?;
    let mut is_empty = true;
    for table in tables(&mut connection).await? {
        // The name comes from the file's own list of tables.
        let query = format!("select exists (select 1 from \"{}\")", table.replace('"', "\"\""));
        let has_rows: bool = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut connection).await?;
        is_empty &= ALWAYS_FILLED.contains(&table.as_str()) || !has_rows;
    }
    connection.close().await?;
    Ok(is_empty)
}

/// Merges the write-ahead log into the file, which succeeds only if no other connection has it open.
pub async fn close_exclusively(path: &Path) -> Result<(), BackupError> {
    let mut connection = open(path, false).await?;
    match sqlx::query("pragma journal_mode = delete").execute(&mut connection).await {
        Ok(_) => Ok(connection.close().await?),
        Err(error) if is_transient(&error) => Err(BackupError::InUse),
        Err(error) => Err(error.into()),
    }
}

/// Returns the highest fencing token of the locks in this file, or the floor that an operator has set above it.
pub async fn highest_token(path: &Path) -> Result<u64, BackupError> {
    let mut connection = open(path, true).await?;
    let has_locks = tables(&mut connection).await?.iter().any(|table| table == "holdoff_lock_token_base");
    let query = "select max(t) from (select floor as t from holdoff_lock_token_base union all select token from holdoff_locks)";
    let highest: Option<i64> =
        if has_locks { sqlx::query_scalar(query).fetch_one(&mut connection).await? } else { None };
    connection.close().await?;
    Ok(u64::try_from(highest.unwrap_or_default()).unwrap_or_default())
}

async fn tables(connection: &mut SqliteConnection) -> Result<Vec<String>, sqlx::Error> {
    let query = "select name from sqlite_master where type = 'table' and name like 'holdoff\\_%' escape '\\'";
    sqlx::query_scalar(query).fetch_all(connection).await
}

async fn open(path: &Path, is_read_only: bool) -> Result<SqliteConnection, sqlx::Error> {
    let options =
        SqliteConnectOptions::new().filename(path).create_if_missing(false).busy_timeout(BUSY_TIMEOUT);
    options.read_only(is_read_only).connect().await
}
