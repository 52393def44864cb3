//! Prunes the history, and measures the oldest snapshot, which prevents the removal of dead rows.

use std::time::Duration;

use sqlx::PgPool;

use super::submit::micros;
use crate::store::{PruneRule, Result};

/// Deletes finished steps by age. A live task keeps its history, because the outputs are the inputs of its steps.
const BY_AGE: &str = "with old as (
        select d.task, d.step from holdoff.done d
        where d.ended_at < clock_timestamp() - holdoff.span($1)
            and not exists (select from holdoff.steps s where s.task = d.task)
        limit $2
    ), gone as (
        delete from holdoff.done d using old where d.task = old.task and d.step = old.step returning d.task, d.step
    ), attempts as (
        delete from holdoff.attempts a using gone where a.task = gone.task and a.step = gone.step
    ), edges as (
        delete from holdoff.edges e using gone where e.task = gone.task and e.parent = gone.step
    )
    select count(*) from gone";

/// Deletes finished steps by number, the oldest first.
const OLDEST: &str = "with old as (
        select d.task, d.step from holdoff.done d
        where not exists (select from holdoff.steps s where s.task = d.task)
        order by d.ended_at limit $1
    ), gone as (
        delete from holdoff.done d using old where d.task = old.task and d.step = old.step returning d.task, d.step
    ), attempts as (
        delete from holdoff.attempts a using gone where a.task = gone.task and a.step = gone.step
    ), edges as (
        delete from holdoff.edges e using gone where e.task = gone.task and e.parent = gone.step
    )
    select count(*) from gone";

/// Batches deleted at once: finding the oldest rows reads the whole table, so each pass deletes many.
const BATCHES_AT_ONCE: i64 = 20;

/// Deletes failed steps that were neither retried nor discarded in time, and the steps blocked by them.
const FORSAKEN: &str = "with old as (
        select s.task from holdoff.lanes l cross join lateral (
            select x.task from holdoff.steps x
            where x.lane = l.id and x.line = 2 and x.ended_at < clock_timestamp() - holdoff.span($1)
            limit $2
        ) s
        where not exists (select from holdoff.steps o where o.task = s.task
            and (o.state in (1, 2) or (o.state in (4, 5) and o.ended_at >= clock_timestamp() - holdoff.span($1))))
        limit $2
    ), gone as (
        delete from holdoff.steps s using (select distinct task from old) old where s.task = old.task
        returning s.task, s.step
    ), attempts as (
        delete from holdoff.attempts a using gone where a.task = gone.task and a.step = gone.step
    ), edges as (
        delete from holdoff.edges e using gone where e.task = gone.task and e.child = gone.step
    )
    select count(*) from gone";

/// Deletes the steps blocked by a discarded step, if the discarded step is old enough to be removed and no other step
/// of the task can change any more.
const BLOCKED_FOR_GOOD: &str = "with old as (
        select distinct d.task from holdoff.done d
        where d.state = 6 and d.ended_at < clock_timestamp() - holdoff.span($1)
            and exists (select from holdoff.steps s where s.task = d.task)
            and not exists (select from holdoff.steps s where s.task = d.task and s.state <> 0)
        limit $2
    ), gone as (
        delete from holdoff.steps s using old where s.task = old.task returning s.task, s.step
    ), attempts as (
        delete from holdoff.attempts a using gone where a.task = gone.task and a.step = gone.step
    ), edges as (
        delete from holdoff.edges e using gone where e.task = gone.task and e.child = gone.step
    )
    select count(*) from gone";

pub(super) async fn prune(pool: &PgPool, rule: PruneRule) -> Result<u64> {
    let mut gone = by_age(pool, rule.keep, rule.limit).await?;
    for (statement, age) in [(FORSAKEN, rule.keep_failed), (BLOCKED_FOR_GOOD, rule.keep)] {
        let count: i64 =
            sqlx::query_scalar(statement).bind(micros(age)).bind(rule.limit).fetch_one(pool).await?;
        gone += u64::try_from(count).unwrap_or(0);
    }
    gone += beyond(pool, rule.max_rows, rule.limit).await?;
    let keys = "delete from holdoff.dedup d where d.ctid = any(array(
            select x.ctid from holdoff.dedup x where x.until < (select clock_timestamp())
            and not exists (select from holdoff.steps s where s.task = x.task) limit $1))";
    sqlx::query(keys).bind(rule.limit).execute(pool).await?;
    let signals = "delete from holdoff.signals g where g.ctid = any(array(
            select x.ctid from holdoff.signals x where x.last_at < clock_timestamp() - holdoff.span($2)
            and not exists (select from holdoff.steps s where s.task = x.task) limit $1))";
    sqlx::query(signals).bind(rule.limit).bind(micros(rule.keep)).execute(pool).await?;
    Ok(gone)
}

async fn by_age(pool: &PgPool, age: Duration, limit: i64) -> Result<u64> {
    let gone: i64 = sqlx::query_scalar(BY_AGE).bind(micros(age)).bind(limit).fetch_one(pool).await?;
    Ok(u64::try_from(gone).unwrap_or(0))
}

/// Deletes the oldest finished steps beyond the limit. The table's statistics decide whether to count at all. The count
/// itself is exact, because statistics lag behind, and relying on them would delete too much.
async fn beyond(pool: &PgPool, max_rows: u64, limit: i64) -> Result<u64> {
    let estimate = "select greatest(0, coalesce(sum(n_live_tup), 0))::bigint from pg_stat_user_tables
        where schemaname = 'holdoff' and relname = 'done'";
    let rows: i64 = sqlx::query_scalar(estimate).fetch_one(pool).await?;
    let max_rows = i64::try_from(max_rows).unwrap_or(i64::MAX);
    if rows <= max_rows {
        return Ok(0);
    }
    let mut tx = pool.begin().await?;
    sqlx::query("set local enable_seqscan = on").execute(&mut *tx).await?;
    let rows: i64 = sqlx::query_scalar("select count(*) from holdoff.done").fetch_one(&mut *tx).await?;
    let too_many = rows.saturating_sub(max_rows).clamp(0, limit.saturating_mul(BATCHES_AT_ONCE));
    if too_many == 0 {
        return Ok(0);
    }
    let gone: i64 = sqlx::query_scalar(OLDEST).bind(too_many).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(u64::try_from(gone).unwrap_or(0))
}

pub(super) async fn oldest_snapshot(pool: &PgPool) -> Result<Duration> {
    let query =
        "select coalesce(max(holdoff.micros(clock_timestamp()) - holdoff.micros(xact_start)), 0)::bigint
        from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()";
    let us: i64 = sqlx::query_scalar(query).fetch_one(pool).await?;
    Ok(crate::engine::reading::duration(us))
}
