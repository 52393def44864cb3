//! Workers by name, and the removal of those that are gone.

use sqlx::SqlitePool;

use super::Write;
use crate::store::{Result, WORKERS_FORGOTTEN, WorkerId};

const HOUR: i64 = 60 * 60 * 1_000_000;

/// Registers a worker. A name has one row. An earlier release may have left several; the latest is used for all.
pub(super) async fn register(mut write: Write, name: &str) -> Result<WorkerId> {
    let update = "update holdoff_workers set seen_at = ?2
        where id = (select max(id) from holdoff_workers where name = ?1) returning id";
    let insert = "insert into holdoff_workers (name, started_at, seen_at) values (?1, ?2, ?2) returning id";
    let known = sqlx::query_scalar(update).bind(name).bind(write.now).fetch_optional(&mut *write.tx);
    let number = match known.await? {
        Some(number) => number,
        None => sqlx::query_scalar(insert).bind(name).bind(write.now).fetch_one(&mut *write.tx).await?,
    };
    write.tx.commit().await?;
    Ok(number)
}

pub(super) async fn seen(mut write: Write, worker: WorkerId, name: &str) -> Result<()> {
    let upsert = "insert into holdoff_workers (id, name, started_at, seen_at) values (?1, ?2, ?3, ?3)
        on conflict (id) do update set seen_at = excluded.seen_at";
    sqlx::query(upsert).bind(worker).bind(name).bind(write.now).execute(&mut *write.tx).await?;
    write.tx.commit().await?;
    Ok(())
}

/// Whether any row is old. A row without `seen_at` was written by an earlier release, whose workers may run for a long
/// time without reporting.
const IS_ANY_OLD: &str = "select exists (select 1 from holdoff_workers
    where coalesce(seen_at, started_at + 30 * 86400 * 1000000) < ?1)";

/// Whether a removal is worthwhile. Finding the mentioned workers reads all steps and attempts. Therefore the removal
/// runs only when a worker has not reported for two hours, and then covers all that have not reported for one.
pub(super) async fn is_any_old(readers: &SqlitePool, now: i64) -> Result<bool> {
    Ok(sqlx::query_scalar(IS_ANY_OLD).bind(now.saturating_sub(2 * HOUR)).fetch_one(readers).await?)
}

/// The temporary table for the workers that a step or an attempt mentions.
const MENTIONED: &str =
    "create temp table if not exists holdoff_mentioned (worker integer primary key) without rowid";

pub(super) async fn forget(mut write: Write) -> Result<u64> {
    let (tx, now) = (&mut *write.tx, write.now);
    sqlx::query(MENTIONED).execute(&mut *tx).await?;
    sqlx::query("delete from temp.holdoff_mentioned").execute(&mut *tx).await?;
    let look = "insert into temp.holdoff_mentioned
        select worker from holdoff_steps where worker is not null
        union select worker from holdoff_attempts where worker is not null
        union select worker from holdoff_done where worker is not null";
    sqlx::query(look).execute(&mut *tx).await?;
    // The highest number is kept, because SQLite would assign it to another worker.
    let forget = "delete from holdoff_workers where id in (
            select id from holdoff_workers
            where coalesce(seen_at, started_at + 30 * 86400 * 1000000) < ?1
                and id not in (select worker from temp.holdoff_mentioned)
                and id < (select max(id) from holdoff_workers)
            limit ?2)";
    let long_ago = now.saturating_sub(HOUR);
    let gone = sqlx::query(forget).bind(long_ago).bind(WORKERS_FORGOTTEN).execute(&mut *tx).await?;
    // The remaining workers are examined again in an hour.
    let keep = "update holdoff_workers set seen_at = ?2
        where coalesce(seen_at, started_at + 30 * 86400 * 1000000) < ?1
            and (id in (select worker from temp.holdoff_mentioned) or id = (select max(id) from holdoff_workers))";
    sqlx::query(keep).bind(long_ago).bind(now).execute(&mut *tx).await?;
    write.tx.commit().await?;
    Ok(gone.rows_affected())
}
