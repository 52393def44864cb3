//! Prunes the history, and returns free pages to the file system.

use sqlx::SqlitePool;

use super::Write;
use super::rows::micros;
use crate::store::{PruneRule, Result};

/// Pages returned at once: a few milliseconds of work.
const PAGES_AT_ONCE: u32 = 2000;

/// The share of pages that may stay free: one in this many.
const KEPT_SHARE: u32 = 10;

/// The temporary table for the ids of finished steps to delete. Ids are ascending by the end of the steps. A live task
/// keeps its history, because the outputs are the inputs of its steps.
const OLD: &str =
    "create temp table if not exists holdoff_old (id integer primary key, task blob, step integer)";

pub(super) async fn prune(mut write: Write, rule: PruneRule) -> Result<u64> {
    let (tx, now) = (&mut *write.tx, write.now);
    sqlx::query(OLD).execute(&mut *tx).await?;
    sqlx::query("delete from temp.holdoff_old").execute(&mut *tx).await?;
    let choose = "insert into temp.holdoff_old select d.id, d.task, d.step from holdoff_done d
        where (d.ended_at < ?1 or d.id <= (select max(id) from holdoff_done) - ?2)
            and not exists (select 1 from holdoff_steps s where s.task = d.task)
        order by d.id limit ?3";
    sqlx::query(choose)
        .bind(now.saturating_sub(micros(rule.keep)))
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
    for (choose, age) in [(FORSAKEN, rule.keep_failed), (BLOCKED_FOR_GOOD, rule.keep)] {
        gone += forsake(tx, choose, now.saturating_sub(micros(age)), rule.limit).await?;
    }
    let keys = "delete from holdoff_dedup where (namespace, key) in (
            select d.namespace, d.key from holdoff_dedup d where d.until < ?1
            and not exists (select 1 from holdoff_steps s where s.task = d.task) limit ?2)";
    sqlx::query(keys).bind(now).bind(rule.limit).execute(&mut *tx).await?;
    let signals = "delete from holdoff_signals where (namespace, fingerprint) in (
            select g.namespace, g.fingerprint from holdoff_signals g where g.last_at < ?1
            and not exists (select 1 from holdoff_steps s where s.task = g.task) limit ?2)";
    let long_ago = now.saturating_sub(micros(rule.keep));
    sqlx::query(signals).bind(long_ago).bind(rule.limit).execute(&mut *tx).await?;
    write.tx.commit().await?;
    Ok(gone)
}

/// Selects failed steps that were neither retried nor discarded in time, and the steps blocked by them.
const FORSAKEN: &str = "insert into temp.holdoff_old (task, step)
        select x.task, x.step from holdoff_steps x where x.task in (
            select s.task from holdoff_lanes l
            cross join holdoff_steps s on s.lane = l.id and s.state in (4, 5) and s.ended_at < ?1
            where not exists (select 1 from holdoff_steps o where o.task = s.task
                and (o.state in (1, 2) or (o.state in (4, 5) and o.ended_at >= ?1)))
            limit ?2)";

/// Selects the steps blocked by a discarded step, if the discarded step is old enough to be removed and no other step
/// of the task can change any more.
const BLOCKED_FOR_GOOD: &str = "insert into temp.holdoff_old (task, step)
        select x.task, x.step from holdoff_steps x where x.task in (
            select d.task from holdoff_done d where d.state = 6 and d.ended_at < ?1
                and exists (select 1 from holdoff_steps s where s.task = d.task)
                and not exists (select 1 from holdoff_steps s where s.task = d.task and s.state <> 0)
            limit ?2)";

/// Deletes unfinished steps that can never finish.
async fn forsake(
    tx: &mut sqlx::SqliteConnection,
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
pub(super) async fn compact(writer: &SqlitePool) -> Result<()> {
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
