//! Bringing the schema up to date.
//!
//! Migrations only add (expand) as long as the version before may still run; what it no longer needs is taken away
//! one version later (contract). `breaks_before` says which versions can no longer work beside a migration.

use sqlx::{Acquire, PgConnection};

use crate::store::Result;
use crate::{Error, next_due};

/// One for all: whoever migrates holds it. The bytes spell "holdoff".
const LOCK: i64 = 0x0068_6f6c_646f_6666;

struct Migration {
    version: i32,
    /// The oldest version that can work beside this one.
    breaks_before: i32,
    sql: &'static str,
}

const MIGRATIONS: [Migration; 2] = [
    Migration { version: 1, breaks_before: 1, sql: include_str!("schema.sql") },
    Migration { version: 2, breaks_before: 1, sql: next_due::POSTGRES },
];

const BEGIN: &str = "create schema if not exists holdoff;
    create table if not exists holdoff.migrations (
        version integer primary key,
        breaks_before integer not null,
        applied_at timestamptz not null default clock_timestamp()
    )";

pub(super) async fn migrate(connection: &mut PgConnection) -> Result<()> {
    let mut tx = connection.begin().await?;
    // `create … if not exists` races with itself, so the lock comes first.
    sqlx::query("select pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await?;
    sqlx::raw_sql(BEGIN).execute(&mut *tx).await?;
    let query = "select coalesce(max(version), 0), coalesce(max(breaks_before), 0) from holdoff.migrations";
    let (found, needs): (i32, i32) = sqlx::query_as(query).fetch_one(&mut *tx).await?;
    let known = MIGRATIONS.last().map_or(0, |last| last.version);
    if needs > known {
        return Err(Error::NewerSchema { found, known });
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        sqlx::query("insert into holdoff.migrations (version, breaks_before) values ($1, $2)")
            .bind(migration.version)
            .bind(migration.breaks_before)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}
