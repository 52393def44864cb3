//! A fence in a Postgres database of your own.
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

/// Makes the table that fences stand in, if it is not there. Any number may try at once.
pub async fn prepare(connection: &mut PgConnection) -> Result<(), FenceError> {
    Ok(holdoff_sql::postgres::migrate(connection, &COMPONENT).await?)
}

/// Lets whoever shows the highest token so far, or the same again, through. It stays in the way of all others until the
/// transaction ends: nobody with a higher token can pass between this and the commit.
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
