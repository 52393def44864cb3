//! Schema migrations on SQLite. Migrations only add, as in Postgres.

use sqlx::{AssertSqlSafe, Sqlite, Transaction};

use crate::{Component, Error};

/// The table that all components share: the largest time that any component has written.
const GROUND: &str = "create table if not exists holdoff_clock (high integer not null);
    insert into holdoff_clock select 0 where not exists (select 1 from holdoff_clock)";

/// Migrates a component's tables in this write transaction, and commits it.
pub async fn migrate(mut tx: Transaction<'static, Sqlite>, component: &Component) -> Result<(), Error> {
    let table = component.table;
    let versions = format!(
        "create table if not exists {table} (
            version integer primary key, breaks_before integer not null
        ) strict"
    );
    sqlx::query(AssertSqlSafe(versions)).execute(&mut *tx).await?;
    let query = format!("select coalesce(max(version), 0), coalesce(max(breaks_before), 0) from {table}");
    let (found, needs): (i32, i32) = sqlx::query_as(AssertSqlSafe(query)).fetch_one(&mut *tx).await?;
    sqlx::raw_sql(GROUND).execute(&mut *tx).await?;
    for migration in component.missing(found, needs)? {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        sqlx::query(AssertSqlSafe(format!("insert into {table} (version, breaks_before) values (?1, ?2)")))
            .bind(migration.version)
            .bind(migration.breaks_before)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}
