//! A fence in a SQLite file of your own.
//!
//! Begin the transaction with `begin immediate`: one that reads first finds the database locked when it wants to write.
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

/// Makes the table that fences stand in, if it is not there. Any number may try at once.
pub async fn prepare(pool: &SqlitePool) -> Result<(), FenceError> {
    Ok(holdoff_sql::sqlite::migrate(pool.begin_with("begin immediate").await?, &COMPONENT).await?)
}

/// Lets whoever shows the highest token so far, or the same again, through. The transaction keeps all others out until it
/// ends: nobody with a higher token can pass between this and the commit.
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
