//! Pruning: the removal of rows beyond their retention.

use holdoff_policy::as_micros_i64;
use holdoff_sql::postgres::Pool;

use super::default_planner;
use crate::engine::columns;
use crate::engine::sql::sql;
use crate::notify::NAMESPACE;
use crate::store::{LaneId, MAX_PRUNED_WORKERS, PruneRule, Result};

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
const ABANDONED: &str = sql!("with old as (
        select s.task from holdoff.lanes l cross join lateral (
            select x.task from holdoff.steps x
            where x.lane = l.id and x.index_state = {index.halted} and x.ended_at < clock_timestamp() - holdoff.span($1)
            limit $2
        ) s
        where not exists (select from holdoff.steps o where o.task = s.task
            and (o.state in ({ready}, {running}) or (o.state in ({failed}, {conflicted}) and o.ended_at >= clock_timestamp() - holdoff.span($1))))
        limit $2
    ), gone as (
        delete from holdoff.steps s using (select distinct task from old) old where s.task = old.task
        returning s.task, s.step
    ), attempts as (
        delete from holdoff.attempts a using gone where a.task = gone.task and a.step = gone.step
    ), edges as (
        delete from holdoff.edges e using gone where e.task = gone.task and e.child = gone.step
    )
    select count(*) from gone");

/// Deletes the steps blocked by a discarded step, if the discarded step is old enough to be removed and no other step
/// of the task can change any more.
const BLOCKED_FOR_EVER: &str = sql!(
    "with old as (
        select distinct d.task from holdoff.done d
        where d.state = {discarded} and d.ended_at < clock_timestamp() - holdoff.span($1)
            and exists (select from holdoff.steps s where s.task = d.task)
            and not exists (select from holdoff.steps s where s.task = d.task and s.state <> {blocked})
        limit $2
    ), gone as (
        delete from holdoff.steps s using old where s.task = old.task returning s.task, s.step
    ), attempts as (
        delete from holdoff.attempts a using gone where a.task = gone.task and a.step = gone.step
    ), edges as (
        delete from holdoff.edges e using gone where e.task = gone.task and e.child = gone.step
    )
    select count(*) from gone"
);

/// Deletes finished steps beyond their retention. Returns their number.
pub(super) async fn finished_by_age(pool: &Pool, rule: PruneRule) -> Result<u64> {
    let gone =
        sqlx::query_scalar(BY_AGE).bind(as_micros_i64(rule.keep)).bind(rule.limit).fetch_one(pool).await?;
    Ok(columns::count(gone))
}

/// Deletes unfinished steps that can never finish. Returns their number.
pub(super) async fn unfinishable(pool: &Pool, rule: PruneRule) -> Result<u64> {
    let mut gone = 0;
    for (statement, age) in [(ABANDONED, rule.keep_failed), (BLOCKED_FOR_EVER, rule.keep)] {
        let query = sqlx::query_scalar(statement).bind(as_micros_i64(age)).bind(rule.limit);
        gone += columns::count(query.fetch_one(pool).await?);
    }
    Ok(gone)
}

/// Deletes the oldest finished steps beyond the limit. The table's statistics decide whether to count at all. The count
/// itself is exact, because statistics lag behind, and relying on them would delete too much.
pub(super) async fn finished_by_number(pool: &Pool, rule: PruneRule) -> Result<u64> {
    let estimate = "select greatest(0, coalesce(sum(n_live_tup), 0))::bigint from pg_stat_user_tables
        where schemaname = 'holdoff' and relname = 'done'";
    let rows: i64 = sqlx::query_scalar(estimate).fetch_one(pool).await?;
    let max_rows = i64::try_from(rule.max_rows).unwrap_or(i64::MAX);
    if rows <= max_rows {
        return Ok(0);
    }
    let mut tx = pool.begin().await?;
    sqlx::query("set local enable_seqscan = on").execute(&mut *tx).await?;
    let rows: i64 = sqlx::query_scalar("select count(*) from holdoff.done").fetch_one(&mut *tx).await?;
    let excess = rows.saturating_sub(max_rows).clamp(0, rule.limit.saturating_mul(BATCHES_AT_ONCE));
    if excess == 0 {
        return Ok(0);
    }
    let gone = sqlx::query_scalar(OLDEST).bind(excess).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(columns::count(gone))
}

/// Deletes deduplication keys and signals beyond their retention, unless their task is live. Returns
/// their number.
pub(super) async fn keys_and_signals(pool: &Pool, rule: PruneRule) -> Result<u64> {
    let keys = "delete from holdoff.dedup d where d.ctid = any(array(
            select x.ctid from holdoff.dedup x where x.until < (select clock_timestamp())
            and not exists (select from holdoff.steps s where s.task = x.task) limit $1))";
    let keys = sqlx::query(keys).bind(rule.limit).execute(pool).await?;
    let signals = "delete from holdoff.signals g where g.ctid = any(array(
            select x.ctid from holdoff.signals x where x.last_at < clock_timestamp() - holdoff.span($2)
            and not exists (select from holdoff.steps s where s.task = x.task) limit $1))";
    let signals = sqlx::query(signals).bind(rule.limit).bind(as_micros_i64(rule.keep)).execute(pool).await?;
    Ok(keys.rows_affected() + signals.rows_affected())
}

/// Whether any worker has not reported for two hours.
const IS_ANY_WORKER_OLD: &str = "select exists (select from holdoff.workers
    where seen_at < clock_timestamp() - interval '2 hours')";

/// Deletes old rows. A row that a step or an attempt mentions is kept, and examined again in an hour.
const DELETE_WORKERS: &str = "with old as materialized (
        select id from holdoff.workers
        where seen_at < clock_timestamp() - interval '1 hour' limit $1
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
            and w.seen_at < clock_timestamp() - interval '1 hour'
        returning w.id
    )
    select count(*) from gone";

/// Removes workers that are gone. Finding the mentioned workers reads all steps and attempts. Therefore the removal
/// runs only when a worker has not reported for two hours, and then covers all that have not reported for one.
pub(super) async fn workers(pool: &Pool) -> Result<u64> {
    let is_any_old: bool = sqlx::query_scalar(IS_ANY_WORKER_OLD).fetch_one(pool).await?;
    if !is_any_old {
        return Ok(0);
    }
    let mut tx = pool.begin().await?;
    default_planner(&mut tx).await?;
    let gone = sqlx::query_scalar(DELETE_WORKERS).bind(MAX_PRUNED_WORKERS).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(columns::count(gone))
}

/// Retires lanes, and deletes those that were retired an hour ago. A transaction that began before a lane was retired, and
/// still runs, may have submitted a step that no other transaction sees yet.
const DELETE_LANES: &str = "with gone as (
        delete from holdoff.lanes l
        where l.id = any($1) and l.retired_at < clock_timestamp() - interval '1 hour'
            and not exists (select from pg_stat_activity a
                where a.datname = current_database() and a.xact_start < l.retired_at + interval '5 minutes')
            and not exists (select from pg_prepared_xacts p
                where p.database = current_database() and p.prepared < l.retired_at + interval '5 minutes')
        returning l.id
    ), retired as (
        update holdoff.lanes l set retired_at = clock_timestamp() where l.id = any($1) and l.retired_at is null
    )
    select count(*) from gone";

/// Retires and deletes the lanes without steps and history. The lane of notifications is used without being looked up
/// again.
pub(super) async fn lanes(pool: &Pool) -> Result<u64> {
    let mut tx = pool.begin().await?;
    default_planner(&mut tx).await?;
    let unused = "select l.id from holdoff.lanes l where l.namespace <> $1
        and l.id not in (select lane from holdoff.steps union select lane from holdoff.done)";
    let unused: Vec<LaneId> = sqlx::query_scalar(unused).bind(NAMESPACE).fetch_all(&mut *tx).await?;
    tx.commit().await?;
    if unused.is_empty() {
        return Ok(0);
    }
    Ok(columns::count(sqlx::query_scalar(DELETE_LANES).bind(unused).fetch_one(pool).await?))
}
