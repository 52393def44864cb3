//! Pruning: the removal of rows beyond their retention, and of free pages.

use holdoff_policy::as_micros_i64;
use holdoff_sql::sqlite::WriteTransaction;
use sqlx::{SqliteConnection, SqlitePool};

use crate::engine::sql::sql;
use crate::notify::NAMESPACE;
use crate::store::{LaneId, MAX_PRUNED_WORKERS, PruneRule, Result};

/// Pages returned at once: a few milliseconds of work.
const PAGES_AT_ONCE: u32 = 2000;

/// The share of pages that may stay free: one in this many.
const KEPT_SHARE: u32 = 10;

/// The temporary table for the ids of finished steps to delete. Ids are ascending by the end of the steps. A live task
/// keeps its history, because the outputs are the inputs of its steps.
const OLD: &str =
    "create temp table if not exists holdoff_old (id integer primary key, task blob, step integer)";

/// Deletes finished steps beyond their retention or their number, and unfinished steps that can never finish. Returns
/// the number of deleted steps.
pub(super) async fn steps(tx: &mut SqliteConnection, now: i64, rule: PruneRule) -> Result<u64> {
    sqlx::query(OLD).execute(&mut *tx).await?;
    sqlx::query("delete from temp.holdoff_old").execute(&mut *tx).await?;
    let choose = "insert into temp.holdoff_old select d.id, d.task, d.step from holdoff_done d
        where (d.ended_at < ?1 or d.id <= (select max(id) from holdoff_done) - ?2)
            and not exists (select 1 from holdoff_steps s where s.task = d.task)
        order by d.id limit ?3";
    sqlx::query(choose)
        .bind(now.saturating_sub(as_micros_i64(rule.keep)))
        .bind(i64::try_from(rule.max_rows).unwrap_or(i64::MAX))
        .bind(rule.limit)
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "delete from holdoff_attempts where (task, step) in (select task, step from temp.holdoff_old)",
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "delete from holdoff_edges where (task, parent) in (select task, step from temp.holdoff_old)",
    )
    .execute(&mut *tx)
    .await?;
    let delete = "delete from holdoff_done where id in (select id from temp.holdoff_old)";
    let mut gone = sqlx::query(delete).execute(&mut *tx).await?.rows_affected();
    for (choose, age) in [(ABANDONED, rule.keep_failed), (BLOCKED_FOR_EVER, rule.keep)] {
        gone += delete_abandoned(tx, choose, now.saturating_sub(as_micros_i64(age)), rule.limit).await?;
    }
    Ok(gone)
}

/// Deletes deduplication keys and signals beyond their retention, unless their task is live. Returns
/// their number.
pub(super) async fn keys_and_signals(tx: &mut SqliteConnection, now: i64, rule: PruneRule) -> Result<u64> {
    let keys = "delete from holdoff_dedup where (namespace, key) in (
            select d.namespace, d.key from holdoff_dedup d where d.until < ?1
            and not exists (select 1 from holdoff_steps s where s.task = d.task) limit ?2)";
    let keys = sqlx::query(keys).bind(now).bind(rule.limit).execute(&mut *tx).await?;
    let signals = "delete from holdoff_signals where (namespace, fingerprint) in (
            select g.namespace, g.fingerprint from holdoff_signals g where g.last_at < ?1
            and not exists (select 1 from holdoff_steps s where s.task = g.task) limit ?2)";
    let long_ago = now.saturating_sub(as_micros_i64(rule.keep));
    let signals = sqlx::query(signals).bind(long_ago).bind(rule.limit).execute(&mut *tx).await?;
    Ok(keys.rows_affected() + signals.rows_affected())
}

/// Selects failed steps that were neither retried nor discarded in time, and the steps blocked by them.
const ABANDONED: &str = sql!("insert into temp.holdoff_old (task, step)
        select x.task, x.step from holdoff_steps x where x.task in (
            select s.task from holdoff_lanes l
            cross join holdoff_steps s on s.lane = l.id and s.state in ({failed}, {conflicted}) and s.ended_at < ?1
            where not exists (select 1 from holdoff_steps o where o.task = s.task
                and (o.state in ({ready}, {running}) or (o.state in ({failed}, {conflicted}) and o.ended_at >= ?1)))
            limit ?2)");

/// Selects the steps blocked by a discarded step, if the discarded step is old enough to be removed and no other step
/// of the task can change any more.
const BLOCKED_FOR_EVER: &str = sql!(
    "insert into temp.holdoff_old (task, step)
        select x.task, x.step from holdoff_steps x where x.task in (
            select d.task from holdoff_done d where d.state = {discarded} and d.ended_at < ?1
                and exists (select 1 from holdoff_steps s where s.task = d.task)
                and not exists (select 1 from holdoff_steps s where s.task = d.task and s.state <> {blocked})
            limit ?2)"
);

/// Deletes unfinished steps that can never finish.
async fn delete_abandoned(
    tx: &mut SqliteConnection,
    choose: &'static str,
    before: i64,
    limit: i64,
) -> Result<u64> {
    sqlx::query("delete from temp.holdoff_old").execute(&mut *tx).await?;
    let chosen = sqlx::query(choose).bind(before).bind(limit).execute(&mut *tx).await?.rows_affected();
    if chosen == 0 {
        return Ok(0);
    }
    for delete in [
        "delete from holdoff_attempts where (task, step) in (select task, step from temp.holdoff_old)",
        "delete from holdoff_edges where (task, child) in (select task, step from temp.holdoff_old)",
        "delete from holdoff_steps where (task, step) in (select task, step from temp.holdoff_old)",
    ] {
        sqlx::query(delete).execute(&mut *tx).await?;
    }
    Ok(chosen)
}

/// Returns free pages to the file system, and checkpoints the log into the file.
pub(super) async fn free_pages(writer: &SqlitePool) -> Result<()> {
    let mut connection = writer.acquire().await?;
    loop {
        let free: u32 = sqlx::query_scalar("pragma freelist_count").fetch_one(&mut *connection).await?;
        let all: u32 = sqlx::query_scalar("pragma page_count").fetch_one(&mut *connection).await?;
        // Some free pages are kept, because new rows will need them soon.
        if free <= all / KEPT_SHARE {
            break;
        }
        sqlx::query(sqlx::AssertSqlSafe(format!("pragma incremental_vacuum({PAGES_AT_ONCE})")))
            .fetch_all(&mut *connection)
            .await?;
    }
    // If a reader blocks the checkpoint, a later call completes it.
    sqlx::query("pragma wal_checkpoint(truncate)").fetch_all(&mut *connection).await?;
    Ok(())
}

const HOUR: i64 = 60 * 60 * 1_000_000;

/// Whether a removal is worthwhile. Finding the mentioned workers reads all steps and attempts. Therefore the removal
/// runs only when a worker has not reported for two hours, and then covers all that have not reported for one.
pub(super) async fn is_any_worker_old(readers: &SqlitePool, now: i64) -> Result<bool> {
    let query = "select exists (select 1 from holdoff_workers where seen_at < ?1)";
    Ok(sqlx::query_scalar(query).bind(now.saturating_sub(2 * HOUR)).fetch_one(readers).await?)
}

/// The temporary table for the workers that a step or an attempt mentions.
const MENTIONED: &str =
    "create temp table if not exists holdoff_mentioned (worker integer primary key) without rowid";

/// Removes workers that have not reported for an hour and that no step or attempt mentions. Returns their number.
pub(super) async fn workers(mut write: WriteTransaction) -> Result<u64> {
    let (tx, now) = (&mut *write.tx, write.now);
    sqlx::query(MENTIONED).execute(&mut *tx).await?;
    sqlx::query("delete from temp.holdoff_mentioned").execute(&mut *tx).await?;
    let look = "insert into temp.holdoff_mentioned
        select worker from holdoff_steps where worker is not null
        union select worker from holdoff_attempts where worker is not null
        union select worker from holdoff_done where worker is not null";
    sqlx::query(look).execute(&mut *tx).await?;
    // The highest number is kept, because SQLite would assign it to another worker.
    let delete = "delete from holdoff_workers where id in (
            select id from holdoff_workers
            where seen_at < ?1
                and id not in (select worker from temp.holdoff_mentioned)
                and id < (select max(id) from holdoff_workers)
            limit ?2)";
    let long_ago = now.saturating_sub(HOUR);
    let gone = sqlx::query(delete).bind(long_ago).bind(MAX_PRUNED_WORKERS).execute(&mut *tx).await?;
    // The remaining workers are examined again in an hour.
    let keep = "update holdoff_workers set seen_at = ?2
        where seen_at < ?1
            and (id in (select worker from temp.holdoff_mentioned) or id = (select max(id) from holdoff_workers))";
    sqlx::query(keep).bind(long_ago).bind(now).execute(&mut *tx).await?;
    write.tx.commit().await?;
    Ok(gone.rows_affected())
}

/// Returns the lanes without steps and history. The lane of notifications is used without being looked up again.
pub(super) async fn unused_lanes(readers: &SqlitePool) -> Result<Vec<LaneId>> {
    let query = "select l.id from holdoff_lanes l where l.namespace <> ?1
        and not exists (select 1 from holdoff_steps s where s.lane = l.id)
        and l.id not in (select lane from holdoff_done)";
    Ok(sqlx::query_scalar(query).bind(NAMESPACE).fetch_all(readers).await?)
}

/// Retires these lanes, and deletes those that were retired an hour ago. Returns the number of deleted lanes.
pub(super) async fn lanes(mut write: WriteTransaction, unused: &[LaneId]) -> Result<u64> {
    let unused = serde_json::json!(unused).to_string();
    let delete =
        "delete from holdoff_lanes where id in (select value from json_each(?1)) and retired_at < ?2";
    let long_ago = write.now.saturating_sub(HOUR);
    let gone = sqlx::query(delete).bind(&unused).bind(long_ago).execute(&mut *write.tx).await?;
    let retire = "update holdoff_lanes set retired_at = ?2
        where id in (select value from json_each(?1)) and retired_at is null";
    sqlx::query(retire).bind(&unused).bind(write.now).execute(&mut *write.tx).await?;
    write.tx.commit().await?;
    Ok(gone.rows_affected())
}
