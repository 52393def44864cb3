//! Workers by name, and the removal of those that are gone.

use sqlx::PgPool;

use super::read::think_freely;
use crate::store::{Result, WORKERS_FORGOTTEN, WorkerId};

/// Registers a worker. A name has one row. An earlier release may have left several; the latest is used for all.
pub(super) async fn register(pool: &PgPool, name: &str) -> Result<WorkerId> {
    let mut tx = pool.begin().await?;
    sqlx::query("lock table holdoff.workers in share row exclusive mode").execute(&mut *tx).await?;
    let update = "update holdoff.workers set seen_at = clock_timestamp()
        where id = (select max(id) from holdoff.workers where name = $1) returning id";
    let insert = "insert into holdoff.workers (name, seen_at) values ($1, clock_timestamp()) returning id";
    let number = match sqlx::query_scalar(update).bind(name).fetch_optional(&mut *tx).await? {
        Some(number) => number,
        None => sqlx::query_scalar(insert).bind(name).fetch_one(&mut *tx).await?,
    };
    tx.commit().await?;
    Ok(number)
}

pub(super) async fn seen(pool: &PgPool, worker: WorkerId, name: &str) -> Result<()> {
    let upsert = "insert into holdoff.workers (id, name, seen_at) overriding system value
        values ($1, $2, clock_timestamp()) on conflict (id) do update set seen_at = excluded.seen_at";
    sqlx::query(upsert).bind(worker).bind(name).execute(pool).await?;
    Ok(())
}

/// Whether any row is old. A row without `seen_at` was written by an earlier release, whose workers may run for a long
/// time without reporting.
const IS_ANY_OLD: &str = "select exists (select from holdoff.workers
    where coalesce(seen_at, started_at + interval '30 days') < clock_timestamp() - interval '2 hours')";

/// Deletes old rows. A row that a step or an attempt mentions is kept, and examined again in an hour.
const FORGET: &str = "with old as materialized (
        select id from holdoff.workers
        where coalesce(seen_at, started_at + interval '30 days') < clock_timestamp() - interval '1 hour' limit $1
    ), mentioned as materialized (
        select worker from holdoff.steps where worker is not null
        union select worker from holdoff.attempts where worker is not null
        union select worker from holdoff.done where worker is not null
    ), kept as (
        update holdoff.workers w set seen_at = clock_timestamp() from old
        where w.id = old.id and w.id in (select worker from mentioned)
    ), gone as (
        delete from holdoff.workers w using old
        where w.id = old.id and w.id not in (select worker from mentioned)
            and coalesce(w.seen_at, w.started_at + interval '30 days') < clock_timestamp() - interval '1 hour'
        returning w.id
    )
    select count(*) from gone";

/// Removes workers that are gone. Finding the mentioned workers reads all steps and attempts. Therefore the removal
/// runs only when a worker has not reported for two hours, and then covers all that have not reported for one.
pub(super) async fn forget(pool: &PgPool) -> Result<u64> {
    let is_any_old: bool = sqlx::query_scalar(IS_ANY_OLD).fetch_one(pool).await?;
    if !is_any_old {
        return Ok(0);
    }
    let mut tx = pool.begin().await?;
    think_freely(&mut tx).await?;
    let gone: i64 = sqlx::query_scalar(FORGET).bind(WORKERS_FORGOTTEN).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(u64::try_from(gone).unwrap_or(0))
}
