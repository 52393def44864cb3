//! Statistics: steps by state, the recent activity that the nodes count, and the nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use holdoff_policy::as_micros_i64;
use sqlx::SqliteConnection;
use sqlx::types::Uuid;

use super::Sqlite;
use super::json_rows::JsonRows;
use crate::engine::columns::{
    self, BreakdownColumns, BucketColumns, LaneColumns, LaneCountColumns, NodeColumns, StateCountColumns,
    list,
};
use crate::engine::sql::sql;
use crate::record::QueueStats;
use crate::stats::{
    NodeRecord, NodeReport, Resolution, StatsQuery, StatsRow, StatsRows, StatsWindow, bucket_start,
};
use crate::store::{LaneId, Result, StatsStore};

const ADD: &str = "insert into holdoff_stats (resolution, kind, at, namespace, name, outcome, count, class)
    select value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
    from json_each(?1) where true
    on conflict do update set count = count + excluded.count, class = coalesce(excluded.class, class)";

/// The number of finished steps counted at once. SQLite sorts by lane in memory, and without a bound it would sort all
/// steps at once.
const COUNTED_AT_ONCE: i64 = 50_000;

#[async_trait]
impl StatsStore for Sqlite {
    async fn queue_stats(&self, stale_after: Duration) -> Result<Vec<QueueStats>> {
        let (mut tx, now) = (self.file.readers().begin().await?, self.file.now());
        let lanes = sql!("select ", list!(LaneColumns, Sqlite), " from holdoff_lanes");
        let lanes = LaneColumns::read(&sqlx::query(lanes).fetch_all(&mut *tx).await?)?;
        // The first query reads the index alone, and the second reads the table alone, in its own order. A single
        // query would alternate between the two for every step and take many times as long.
        let groups =
            sql!("select ", list!(StateCountColumns, Sqlite), " from holdoff_steps group by lane, state");
        let mut groups = StateCountColumns::read(&sqlx::query(groups).bind(now).fetch_all(&mut *tx).await?)?;
        let stale = sql!(
            "select ",
            list!(LaneCountColumns, Sqlite),
            " from holdoff_steps where +state in ({ready}, {running}) and created_at <= ?1 group by +lane"
        );
        let long_ago = now.saturating_sub(as_micros_i64(stale_after));
        let stale = sqlx::query(stale).bind(long_ago).fetch_all(&mut *tx).await?;
        groups.extend(LaneCountColumns::read(&stale)?.iter().map(stale_group));
        let done = finished_by_lane(&mut tx).await?;
        Ok(columns::queue_stats(lanes, groups, done))
    }

    /// A reader delays the checkpoint of the log only while it reads.
    async fn oldest_snapshot(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    async fn add_stats(&self, rows: &[StatsRow], node: Option<&NodeReport>) -> Result<()> {
        let mut write = self.file.write_relaxed().await?;
        if !rows.is_empty() {
            let mut added = JsonRows::new();
            let all =
                Resolution::ALL.iter().flat_map(|resolution| rows.iter().map(move |row| (resolution, row)));
            for (resolution, row) in all {
                let at = bucket_start(write.now, resolution.width(row.kind));
                added.row().number(resolution.number.into()).number(row.kind as i64).number(at);
                added.text(Some(&row.namespace)).text(Some(&row.name)).number(row.outcome.into());
                added.number(i64::try_from(row.count).unwrap_or(i64::MAX)).text(row.class.as_deref());
            }
            sqlx::query(ADD).bind(added.finish()).execute(&mut *write.tx).await?;
        }
        if let Some(node) = node {
            report_node(&mut write.tx, write.now, node).await?;
        }
        write.tx.commit().await?;
        Ok(())
    }

    async fn remove_node(&self, node: Uuid) -> Result<()> {
        let mut write = self.file.write_relaxed().await?;
        sqlx::query("delete from holdoff_nodes where id = ?1").bind(node).execute(&mut *write.tx).await?;
        write.tx.commit().await?;
        Ok(())
    }

    async fn prune_stats(&self) -> Result<()> {
        let mut write = self.file.write_relaxed().await?;
        let rows = sql!(
            "delete from holdoff_stats where resolution = ?1 and kind in ({stats.steps}, {stats.class},
                {stats.attempt}, {stats.operation}, {stats.destination}) and at < ?2"
        );
        for resolution in Resolution::ALL {
            // A bucket is deleted when its end is too old.
            let age = as_micros_i64(resolution.retention + resolution.breakdown_width);
            let before = write.now.saturating_sub(age);
            sqlx::query(rows).bind(resolution.number).bind(before).execute(&mut *write.tx).await?;
        }
        sqlx::query("delete from holdoff_nodes where seen_at < ?1")
            .bind(write.now.saturating_sub(as_micros_i64(NodeRecord::RETENTION)))
            .execute(&mut *write.tx)
            .await?;
        write.tx.commit().await?;
        Ok(())
    }

    async fn recent_stats(&self, query: &StatsQuery<'_>) -> Result<StatsRows> {
        let (mut tx, now) = (self.file.readers().begin().await?, self.file.now());
        let buckets = sql!(
            "select ",
            list!(BucketColumns, Sqlite),
            " from holdoff_stats
            where resolution = ?1 and kind = {stats.steps} and at >= ?2 and (?3 is null or namespace = ?3)
            group by at"
        );
        let buckets = sqlx::query(buckets)
            .bind(query.resolution.number)
            .bind(query.first_bucket(now))
            .bind(query.namespace)
            .fetch_all(&mut *tx)
            .await?;
        let breakdown = sql!(
            "select ",
            list!(BreakdownColumns, Sqlite),
            " from holdoff_stats
            where resolution = ?1
                and kind in ({stats.class}, {stats.attempt}, {stats.operation}, {stats.destination})
                and at >= ?2 and (?3 is null or namespace = ?3)
            group by kind, namespace, name, outcome
            order by kind in ({stats.class}, {stats.attempt}) desc, outcome = {stats.failure} desc, sum(count) desc
            limit ?4"
        );
        let breakdown = sqlx::query(breakdown)
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
            list!(NodeColumns, Sqlite),
            " from holdoff_nodes order by is_alive desc, name, started_at limit 1000"
        );
        let long_ago = self.file.now().saturating_sub(as_micros_i64(NodeRecord::ALIVE_FOR));
        let rows = sqlx::query(query).bind(long_ago).fetch_all(self.file.readers()).await?;
        Ok(NodeColumns::read(&rows)?.into_iter().map(NodeColumns::into_record).collect())
    }
}

/// Returns a group that adds only a number of stale steps.
const fn stale_group(row: &LaneCountColumns) -> StateCountColumns {
    let state = crate::StepState::Ready.code();
    StateCountColumns { lane: row.lane, state, total: 0, due: 0, stale: row.total, oldest_us: None }
}

async fn finished_by_lane(tx: &mut SqliteConnection) -> Result<Vec<LaneCountColumns>> {
    let ends = "select (select min(id) from holdoff_done), (select max(id) from holdoff_done)";
    let (first, last): (Option<i64>, Option<i64>) = sqlx::query_as(ends).fetch_one(&mut *tx).await?;
    let (Some(mut from), Some(last)) = (first, last) else { return Ok(Vec::new()) };
    let mut totals: BTreeMap<LaneId, i64> = BTreeMap::new();
    let query = sql!(
        "select ",
        list!(LaneCountColumns, Sqlite),
        " from holdoff_done where id >= ?1 and id < ?2 and state = {succeeded} group by lane"
    );
    while from <= last {
        let to = from.saturating_add(COUNTED_AT_ONCE);
        let part = sqlx::query(query).bind(from).bind(to).fetch_all(&mut *tx).await?;
        for LaneCountColumns { lane, total } in LaneCountColumns::read(&part)? {
            *totals.entry(lane).or_default() += total;
        }
        from = to;
    }
    Ok(totals.into_iter().map(|(lane, total)| LaneCountColumns { lane, total }).collect())
}

async fn report_node(tx: &mut SqliteConnection, now: i64, node: &NodeReport) -> Result<()> {
    let upsert =
        "insert into holdoff_nodes (id, name, version, started_at, seen_at, policies, drift, running, slots,
            finished)
        values (?1, ?2, ?3, ?9, ?9, ?4, ?5, ?6, ?7, ?8)
        on conflict (id) do update set seen_at = excluded.seen_at, policies = excluded.policies,
            drift = excluded.drift, running = excluded.running, slots = excluded.slots,
            finished = excluded.finished";
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
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}
