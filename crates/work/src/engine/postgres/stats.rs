//! Statistics: steps by state, the recent activity that the nodes count, and the nodes.

use std::time::Duration;

use async_trait::async_trait;
use holdoff_policy::as_micros_i64;
use holdoff_sql::postgres::Session;
use sqlx::types::Uuid;

use super::{Postgres, default_planner};
use crate::engine::columns::{
    self, BreakdownColumns, BucketColumns, LaneColumns, LaneCountColumns, NodeColumns, StateCountColumns,
    list,
};
use crate::engine::sql::sql;
use crate::record::QueueStats;
use crate::stats::{NodeRecord, NodeReport, Resolution, StatsQuery, StatsRow, StatsRows, StatsWindow};
use crate::store::{Result, StatsStore};

/// Adds counts to existing rows. All nodes write rows in the same order, so that two nodes cannot deadlock.
const ADD: &str = "insert into holdoff.stats as p (resolution, kind, at, namespace, name, outcome, count, class)
    select x.resolution, x.kind, to_timestamp(floor(extract(epoch from n.now) / x.width) * x.width), x.namespace, x.name,
        x.outcome, x.count, x.class
    from (select clock_timestamp() as now) n,
        unnest($1::smallint[], $2::smallint[], $3::int[], $4::text[], $5::text[], $6::smallint[], $7::bigint[],
            $8::text[]) as x(resolution, kind, width, namespace, name, outcome, count, class)
    on conflict (resolution, kind, at, namespace, name, outcome) do update
        set count = p.count + excluded.count, class = coalesce(excluded.class, p.class)";

const BUCKETS: &str = sql!(
    "select ",
    list!(BucketColumns, Postgres),
    " from holdoff.stats
    where resolution = $1 and kind = {stats.steps} and at >= 'epoch'::timestamptz + holdoff.span($2)
        and ($3::text is null or namespace = $3)
    group by at"
);

const BREAKDOWN: &str = sql!(
    "with sums as materialized (
        select kind, namespace, name, outcome, sum(count)::bigint as total, max(at) filter (where class is not null) as at
        from holdoff.stats
        where resolution = $1
            and kind in ({stats.class}, {stats.attempt}, {stats.operation}, {stats.destination})
            and at >= 'epoch'::timestamptz + holdoff.span($2) and ($3::text is null or namespace = $3)
        group by kind, namespace, name, outcome
        order by kind in ({stats.class}, {stats.attempt}) desc, outcome = {stats.failure} desc, 5 desc limit $4
    )
    select ",
    list!(BreakdownColumns, Postgres),
    " from sums s left join holdoff.stats p on p.resolution = $1 and p.kind = s.kind and p.at = s.at
        and p.namespace = s.namespace and p.name = s.name and p.outcome = s.outcome"
);

#[async_trait]
impl StatsStore for Postgres {
    async fn queue_stats(&self, stale_after: Duration) -> Result<Vec<QueueStats>> {
        let mut tx = self.pool.begin_with("begin isolation level repeatable read").await?;
        default_planner(&mut tx).await?;
        let lanes = sql!("select ", list!(LaneColumns, Postgres), " from holdoff.lanes");
        let lanes = LaneColumns::read(&sqlx::query(lanes).fetch_all(&mut *tx).await?)?;
        let groups = sql!(
            "select ",
            list!(StateCountColumns, Postgres),
            " from holdoff.steps, (select clock_timestamp() as now) now group by lane, state"
        );
        let groups = sqlx::query(groups).bind(as_micros_i64(stale_after)).fetch_all(&mut *tx).await?;
        let done = sql!(
            "select ",
            list!(LaneCountColumns, Postgres),
            " from holdoff.done where state = {succeeded} group by lane"
        );
        let done = LaneCountColumns::read(&sqlx::query(done).fetch_all(&mut *tx).await?)?;
        Ok(columns::queue_stats(lanes, StateCountColumns::read(&groups)?, done))
    }

    async fn oldest_snapshot(&self) -> Result<Duration> {
        let query =
            "select coalesce(max(holdoff.micros(clock_timestamp()) - holdoff.micros(xact_start)), 0)::bigint
            from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()";
        Ok(columns::duration(sqlx::query_scalar(query).fetch_one(&self.pool).await?))
    }

    /// Writes the counts and the node in one transaction. If it fails, the caller keeps the counts for the next write.
    async fn add_stats(&self, rows: &[StatsRow], node: Option<&NodeReport>) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        if !rows.is_empty() {
            add_rows(&mut tx, rows).await?;
        }
        if let Some(node) = node {
            report_node(&mut tx, node).await?;
        }
        Ok(tx.commit().await?)
    }

    async fn remove_node(&self, node: Uuid) -> Result<()> {
        sqlx::query("delete from holdoff.nodes where id = $1").bind(node).execute(&self.pool).await?;
        Ok(())
    }

    /// Rows that another transaction is deleting are skipped.
    async fn prune_stats(&self) -> Result<()> {
        let rows = sql!(
            "delete from holdoff.stats p where p.ctid = any(array(
                select x.ctid from holdoff.stats x where x.resolution = $1 and x.kind in ({stats.steps},
                    {stats.class}, {stats.attempt}, {stats.operation}, {stats.destination})
                and x.at < (select clock_timestamp()) - holdoff.span($2) limit 10000 for update skip locked))"
        );
        for resolution in Resolution::ALL {
            // A bucket is deleted when its end is too old.
            let age = as_micros_i64(resolution.retention + resolution.breakdown_width);
            sqlx::query(rows).bind(resolution.number).bind(age).execute(&self.pool).await?;
        }
        let nodes = "delete from holdoff.nodes n where n.ctid = any(array(
                select x.ctid from holdoff.nodes x where x.seen_at < (select clock_timestamp()) - holdoff.span($1)
                for update skip locked))";
        sqlx::query(nodes).bind(as_micros_i64(NodeRecord::RETENTION)).execute(&self.pool).await?;
        Ok(())
    }

    async fn recent_stats(&self, query: &StatsQuery<'_>) -> Result<StatsRows> {
        let mut tx = self.pool.begin_with("begin isolation level repeatable read").await?;
        sqlx::raw_sql("set local enable_hashagg = on").execute(&mut *tx).await?;
        let now: i64 =
            sqlx::query_scalar("select holdoff.micros(clock_timestamp())").fetch_one(&mut *tx).await?;
        let buckets = sqlx::query(BUCKETS)
            .bind(query.resolution.number)
            .bind(query.first_bucket(now))
            .bind(query.namespace)
            .fetch_all(&mut *tx)
            .await?;
        let breakdown = sqlx::query(BREAKDOWN)
            .bind(query.resolution.number)
            .bind(query.first_breakdown(now))
            .bind(query.namespace)
            .bind(StatsWindow::MAX_ROWS)
            .fetch_all(&mut *tx)
            .await?;
        let (buckets, breakdown) = (BucketColumns::read(&buckets)?, BreakdownColumns::read(&breakdown)?);
        Ok(StatsRows { now, buckets, breakdown })
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        let query = sql!(
            "select ",
            list!(NodeColumns, Postgres),
            " from holdoff.nodes n order by is_alive desc, n.name, n.started_at limit 1000"
        );
        let query = sqlx::query(query).bind(as_micros_i64(NodeRecord::ALIVE_FOR));
        let rows = query.fetch_all(&self.pool).await?;
        Ok(NodeColumns::read(&rows)?.into_iter().map(NodeColumns::into_record).collect())
    }
}

async fn add_rows(tx: &mut Session<'_>, rows: &[StatsRow]) -> Result<()> {
    let all: Vec<(Resolution, &StatsRow)> = Resolution::ALL
        .into_iter()
        .flat_map(|resolution| rows.iter().map(move |row| (resolution, row)))
        .collect();
    let width = |(resolution, row): &(Resolution, &StatsRow)| {
        i32::try_from(resolution.width(row.kind).as_secs()).unwrap_or(i32::MAX)
    };
    sqlx::query(ADD)
        .bind(all.iter().map(|(resolution, _)| resolution.number).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, row)| row.kind as i16).collect::<Vec<_>>())
        .bind(all.iter().map(width).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, row)| row.namespace.as_str()).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, row)| row.name.as_str()).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, row)| row.outcome).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, row)| i64::try_from(row.count).unwrap_or(i64::MAX)).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, row)| row.class.as_deref()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

async fn report_node(tx: &mut Session<'_>, node: &NodeReport) -> Result<()> {
    let upsert = "insert into holdoff.nodes (id, name, version, started_at, seen_at, policies, drift, running, slots,
            finished)
        values ($1, $2, $3, clock_timestamp(), clock_timestamp(), $4, $5, $6, $7, $8)
        on conflict (id) do update set seen_at = clock_timestamp(), policies = excluded.policies, drift = excluded.drift,
            running = excluded.running, slots = excluded.slots, finished = excluded.finished";
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    sqlx::query(upsert)
        .bind(node.id)
        .bind(&node.name)
        .bind(node.version)
        .bind(&node.policies)
        .bind(&node.drift)
        .bind(count(node.running))
        .bind(count(node.slots))
        .bind(count(node.finished))
        .execute(tx)
        .await?;
    Ok(())
}
