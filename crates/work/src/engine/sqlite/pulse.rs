//! Recent activity as counted by the nodes, and the nodes.

use sqlx::SqlitePool;
use sqlx::types::Uuid;

use super::Write;
use super::rows::{Rows, micros};
use crate::engine::reading::{self, NodeRecordRow};
use crate::node::{NodeRecord, NodeRow};
use crate::pulse::{Asked, Kept, Level, Pulse, PulseRow, bucket};
use crate::store::Result;

const ADD: &str = "insert into holdoff_pulse (level, what, at, namespace, name, outcome, count, class)
    select value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
    from json_each(?1) where true
    on conflict do update set count = count + excluded.count, class = coalesce(excluded.class, class)";

/// Adds counts to existing rows, and stores the node's report about itself.
pub(super) async fn beat(mut write: Write, rows: &[PulseRow], node: Option<&NodeRow>) -> Result<()> {
    if !rows.is_empty() {
        let mut added = Rows::new();
        for (level, row) in Level::ALL.iter().flat_map(|level| rows.iter().map(move |row| (level, row))) {
            let at = bucket(write.now, level.width(row.what));
            added.row().number(level.number.into()).number(row.what as i64).number(at);
            added.text(Some(&row.namespace)).text(Some(&row.name)).number(row.outcome.into());
            added.number(i64::try_from(row.count).unwrap_or(i64::MAX)).text(row.class.as_deref());
        }
        sqlx::query(ADD).bind(added.finish()).execute(&mut *write.tx).await?;
    }
    if let Some(node) = node {
        let tell = "insert into holdoff_nodes (id, name, version, started_at, seen_at, policies, drift, running, places,
                finished)
            values (?1, ?2, ?3, ?9, ?9, ?4, ?5, ?6, ?7, ?8)
            on conflict (id) do update set seen_at = excluded.seen_at, policies = excluded.policies,
                drift = excluded.drift, running = excluded.running, places = excluded.places,
                finished = excluded.finished";
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        sqlx::query(tell)
            .bind(node.id)
            .bind(&node.name)
            .bind(node.version)
            .bind(&node.policies)
            .bind(&node.drift)
            .bind(count(node.running))
            .bind(count(node.places))
            .bind(count(node.finished))
            .bind(write.now)
            .execute(&mut *write.tx)
            .await?;
    }
    write.tx.commit().await?;
    Ok(())
}

pub(super) async fn leave(mut write: Write, node: Uuid) -> Result<()> {
    sqlx::query("delete from holdoff_nodes where id = ?1").bind(node).execute(&mut *write.tx).await?;
    write.tx.commit().await?;
    Ok(())
}

/// Deletes counts and nodes that are too old.
pub(super) async fn forget(mut write: Write) -> Result<()> {
    let old = "delete from holdoff_pulse where level = ?1 and what in (0, 1, 2, 3, 4) and at < ?2";
    for level in Level::ALL {
        // A bucket is deleted when its end is too old.
        let before = write.now.saturating_sub(micros(level.kept + level.rest));
        sqlx::query(old).bind(level.number).bind(before).execute(&mut *write.tx).await?;
    }
    sqlx::query("delete from holdoff_nodes where seen_at < ?1")
        .bind(write.now.saturating_sub(micros(NodeRecord::KEPT)))
        .execute(&mut *write.tx)
        .await?;
    write.tx.commit().await?;
    Ok(())
}

pub(super) async fn pulse(readers: &SqlitePool, now: i64, asked: &Asked<'_>) -> Result<Kept> {
    let mut tx = readers.begin().await?;
    let beats = "select at, sum(iif(outcome = 100, count, 0)), sum(iif(outcome = 0, count, 0)),
            sum(iif(outcome = 1, count, 0)), sum(iif(outcome = 2, count, 0)), sum(iif(outcome = 3, count, 0)),
            sum(iif(outcome between 4 and 99, count, 0))
        from holdoff_pulse
        where level = ?1 and what = 0 and at >= ?2 and (?3 is null or namespace = ?3)
        group by at";
    let beats = sqlx::query_as(beats)
        .bind(asked.level.number)
        .bind(asked.first_beat(now))
        .bind(asked.namespace)
        .fetch_all(&mut *tx)
        .await?;
    let rest = "select what, namespace, name, outcome, sum(count), substr(max(at || class), 17)
        from holdoff_pulse
        where level = ?1 and what in (1, 2, 3, 4) and at >= ?2 and (?3 is null or namespace = ?3)
        group by what, namespace, name, outcome
        order by what in (1, 2) desc, outcome = 1 desc, sum(count) desc limit ?4";
    let rest = sqlx::query_as(rest)
        .bind(asked.level.number)
        .bind(asked.first_rest(now))
        .bind(asked.namespace)
        .bind(Pulse::MOST_ROWS)
        .fetch_all(&mut *tx)
        .await?;
    Ok(Kept { now, beats, rest })
}

pub(super) async fn nodes(readers: &SqlitePool, now: i64) -> Result<Vec<NodeRecord>> {
    let query =
        "select name, version, started_at, seen_at, policies, drift, running, places, finished, seen_at > ?1
        from holdoff_nodes order by 10 desc, name, started_at limit 1000";
    let long_ago = now.saturating_sub(micros(NodeRecord::ALIVE));
    let rows: Vec<NodeRecordRow> = sqlx::query_as(query).bind(long_ago).fetch_all(readers).await?;
    Ok(rows.into_iter().map(reading::node).collect())
}
