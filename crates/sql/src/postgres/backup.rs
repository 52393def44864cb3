//! Checks of a database before a restore.

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::pool::connect_options;
use crate::BackupError;

/// Tables that contain rows even in an unused store.
const ALWAYS_FILLED: [&str; 6] = [
    "migrations",
    "lock_migrations",
    "lock_token_base",
    "lock_crash_marker",
    "server_migrations",
    "fence_migrations",
];

/// The holdoff tables in a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Contents {
    /// There are none.
    Absent,
    /// There are tables, but the store was never used.
    Unused,
    /// The store is in use.
    Used,
}

/// Returns whether this database contains a holdoff store, and whether it was used.
pub async fn contents(url: &str) -> Result<Contents, BackupError> {
    let mut connection = open(url).await?;
    let query = "select exists (select from pg_namespace where nspname = 'holdoff')";
    let is_there: bool = sqlx::query_scalar(query).fetch_one(&mut connection).await?;
    if !is_there {
        return Ok(Contents::Absent);
    }
    let query = "select tablename::text from pg_tables where schemaname = 'holdoff'";
    let tables: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut connection).await?;
    let mut found = Contents::Unused;
    for table in tables.iter().filter(|table| !ALWAYS_FILLED.contains(&table.as_str())) {
        // The name comes from the database's own list of tables.
        let query = format!("select exists (select from holdoff.\"{}\")", table.replace('"', "\"\""));
        let has_rows: bool = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut connection).await?;
        if has_rows {
            found = Contents::Used;
        }
    }
    connection.close().await?;
    Ok(found)
}

/// The state of the database before a restore.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PreviousStore {
    /// The schema under which the previous store is preserved, if it was used.
    pub aside: Option<String>,
    /// The highest fencing token of the previous locks, or the floor that an operator has set above it.
    pub highest_token: u64,
}

/// Prepares a database for a restore: drops unused tables, and renames the schema of a used store.
///
/// Returns [`BackupError::InUse`] while another connection with the application name `holdoff` is open. The pools of
/// [`PoolOptions::open`](super::PoolOptions::open) set that name. A connection with another name is not detected, and
/// neither is a process that is not connected at that moment: the operator must stop every holdoff process first.
pub async fn prepare_restore(url: &str) -> Result<PreviousStore, BackupError> {
    let found = contents(url).await?;
    let mut connection = open(url).await?;
    let query = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'holdoff' and pid <> pg_backend_pid()";
    let others: i64 = sqlx::query_scalar(query).fetch_one(&mut connection).await?;
    if others > 0 {
        return Err(BackupError::InUse);
    }
    let highest_token = if found == Contents::Absent { 0 } else { highest_token(&mut connection).await? };
    let aside = match found {
        Contents::Absent => None,
        Contents::Unused => {
            sqlx::query("drop schema holdoff cascade").execute(&mut connection).await?;
            None
        }
        Contents::Used => {
            let query =
                "select 'holdoff_before_restore_' || to_char(clock_timestamp(), 'YYYYMMDDHH24MISSMS')";
            let name: String = sqlx::query_scalar(query).fetch_one(&mut connection).await?;
            let rename = format!("alter schema holdoff rename to {name}");
            sqlx::query(AssertSqlSafe(rename)).execute(&mut connection).await?;
            Some(name)
        }
    };
    connection.close().await?;
    Ok(PreviousStore { aside, highest_token })
}

async fn highest_token(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let query = "select to_regclass('holdoff.lock_token_base') is not null";
    let has_locks: bool = sqlx::query_scalar(query).fetch_one(&mut *connection).await?;
    if !has_locks {
        return Ok(0);
    }
    let query = "select greatest((select max(floor) from holdoff.lock_token_base), (select max(token) from holdoff.locks))";
    let highest: Option<i64> = sqlx::query_scalar(query).fetch_one(connection).await?;
    Ok(u64::try_from(highest.unwrap_or_default()).unwrap_or_default())
}

async fn open(url: &str) -> Result<PgConnection, BackupError> {
    let (options, is_pooled) = connect_options(url).map_err(BackupError::Store)?;
    if is_pooled {
        return Err(BackupError::Pooled);
    }
    Ok(options.application_name("holdoff admin").connect().await?)
}
