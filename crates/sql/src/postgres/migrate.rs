//! Schema migrations on Postgres.

use sqlx::{Acquire, AssertSqlSafe, PgConnection};

use crate::{Component, Error};

/// The advisory lock of all migrations: the migrating process holds it. The bytes spell "holdoff".
const LOCK: i64 = 0x0068_6f6c_646f_6666;

/// Migrates a component's tables to the newest schema. Any number of processes may call it concurrently.
pub async fn migrate(connection: &mut PgConnection, component: &Component) -> Result<(), Error> {
    let table = component.table;
    let mut tx = connection.begin().await?;
    // Concurrent `create … if not exists` statements can conflict, so the lock comes first.
    sqlx::query("select pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await?;
    // Suppresses the notices that the objects already exist.
    sqlx::query("set local client_min_messages = warning").execute(&mut *tx).await?;
    let ground = format!(
        "create schema if not exists holdoff;
        create table if not exists {table} (
            version integer primary key,
            breaks_before integer not null,
            applied_at timestamptz not null default clock_timestamp()
        )"
    );
    sqlx::raw_sql(AssertSqlSafe(ground)).execute(&mut *tx).await?;
    let query = format!("select coalesce(max(version), 0), coalesce(max(breaks_before), 0) from {table}");
    let (found, needs): (i32, i32) = sqlx::query_as(AssertSqlSafe(query)).fetch_one(&mut *tx).await?;
    for migration in component.missing(found, needs)? {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        sqlx::query(AssertSqlSafe(format!("insert into {table} (version, breaks_before) values ($1, $2)")))
            .bind(migration.version)
            .bind(migration.breaks_before)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}
