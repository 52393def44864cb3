//! Bringing the schema up to date. Migrations only add, as in Postgres.

use sqlx::SqlitePool;

use crate::Error;
use crate::store::Result;

struct Migration {
    version: i32,
    /// The oldest version that can work beside this one.
    breaks_before: i32,
    sql: &'static str,
}

const MIGRATIONS: [Migration; 1] =
    [Migration { version: 1, breaks_before: 1, sql: include_str!("schema.sql") }];

const BEGIN: &str = "create table if not exists holdoff_migrations (
        version integer primary key, breaks_before integer not null
    ) strict";

pub(super) async fn migrate(pool: &SqlitePool) -> Result<()> {
    let mut tx = super::begin(pool).await?;
    sqlx::query(BEGIN).execute(&mut *tx).await?;
    let query = "select coalesce(max(version), 0), coalesce(max(breaks_before), 0) from holdoff_migrations";
    let (found, needs): (i32, i32) = sqlx::query_as(query).fetch_one(&mut *tx).await?;
    let known = MIGRATIONS.last().map_or(0, |last| last.version);
    if needs > known {
        return Err(Error::NewerSchema { found, known });
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        sqlx::query("insert into holdoff_migrations (version, breaks_before) values (?1, ?2)")
            .bind(migration.version)
            .bind(migration.breaks_before)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}
