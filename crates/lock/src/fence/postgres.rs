//! A fence in the caller's own Postgres database.
//!
//! ```no_run
//! use holdoff_lock::{Key, Token, postgres};
//!
//! # async fn pay(pool: &sqlx::PgPool, key: &Key, token: Token) -> Result<(), Box<dyn std::error::Error>> {
//! postgres::prepare(&mut *pool.acquire().await?).await?; // once, when the program starts
//!
//! let mut tx = pool.begin().await?;
//! postgres::fence(&mut *tx, key, token).await?;
//! sqlx::query("insert into payments (id) values (7)").execute(&mut *tx).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```

use holdoff_sql::{Component, Migration};
use sqlx::PgConnection;

use super::{FenceError, number, verdict};
use crate::{Key, Token};

const COMPONENT: Component = Component {
    table: "holdoff.fence_migrations",
    migrations: &[Migration {
        version: 1,
        breaks_before: 1,
        sql: "create table holdoff.fences (
            digest bytea primary key,
            token bigint not null,
            passed_at timestamptz not null
        ) with (fillfactor = 50)",
    }],
};

/// Creates the table of the fences if it does not exist. Any number of processes may call it at the same time.
pub async fn prepare(connection: &mut PgConnection) -> Result<(), FenceError> {
    Ok(holdoff_sql::postgres::migrate(connection, &COMPONENT).await?)
}

/// Accepts a token that is at least as high as the highest token so far, and rejects a lower one. The row stays locked
/// until the transaction ends, so no higher token can be accepted between this call and the commit.
pub async fn fence(connection: &mut PgConnection, key: &Key, token: Token) -> Result<(), FenceError> {
    let query =
        "insert into holdoff.fences as f (digest, token, passed_at) values ($1, $2, clock_timestamp())
        on conflict (digest) do update set token = greatest(f.token, excluded.token),
            passed_at = case when f.token <= excluded.token then excluded.passed_at else f.passed_at end
        returning token";
    let seen: i64 = sqlx::query_scalar(query)
        .bind(key.digest().as_slice())
        .bind(number(token))
        .fetch_one(connection)
        .await?;
    verdict(token, seen)
}
