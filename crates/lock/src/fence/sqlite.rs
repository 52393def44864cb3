//! A fence in the caller's own SQLite file.
//!
//! Begin the transaction with `begin immediate`. A transaction that reads first fails with a locked database at its
//! first write.
//!
//! ```no_run
//! use holdoff_lock::{Key, Token, sqlite};
//!
//! # async fn pay(pool: &sqlx::SqlitePool, key: &Key, token: Token) -> Result<(), Box<dyn std::error::Error>> {
//! sqlite::prepare(pool).await?; // once, when the program starts
//!
//! let mut tx = pool.begin_with("begin immediate").await?;
//! sqlite::fence(&mut *tx, key, token).await?;
//! sqlx::query("insert into payments (id) values (7)").execute(&mut *tx).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```

use holdoff_sql::{Component, Migration};
use sqlx::{SqliteConnection, SqlitePool};

use super::{FenceError, number, verdict};
use crate::{Key, Token};

const COMPONENT: Component = Component {
    table: "holdoff_fence_migrations",
    migrations: &[Migration {
        version: 1,
        breaks_before: 1,
        sql: "create table holdoff_fences (digest blob primary key, token integer not null) strict, without rowid",
    }],
};

/// Creates the table of the fences if it does not exist. Any number of processes may call it at the same time.
pub async fn prepare(pool: &SqlitePool) -> Result<(), FenceError> {
    Ok(holdoff_sql::sqlite::migrate(pool.begin_with("begin immediate").await?, &COMPONENT).await?)
}

/// Accepts a token that is at least as high as the highest token so far, and rejects a lower one. The transaction
/// excludes all other writers until it ends, so no higher token can be accepted between this call and the commit.
pub async fn fence(connection: &mut SqliteConnection, key: &Key, token: Token) -> Result<(), FenceError> {
    let query = "insert into holdoff_fences (digest, token) values (?1, ?2)
        on conflict (digest) do update set token = max(token, excluded.token) returning token";
    let seen: i64 = sqlx::query_scalar(query)
        .bind(key.digest().as_slice())
        .bind(number(token))
        .fetch_one(connection)
        .await?;
    verdict(token, seen)
}
