//! Recent activity as counted by the nodes, and the nodes.

use sqlx::types::Uuid;
use sqlx::{PgConnection, PgPool};

use super::submit::micros;
use crate::engine::reading::{self, NodeRecordRow};
use crate::node::{NodeRecord, NodeRow};
use crate::pulse::{Asked, Kept, Level, Pulse, PulseRow};
use crate::store::Result;

/// Adds counts to existing rows. All nodes write rows in the same order, so that two nodes cannot deadlock.
const ADD: &str = "insert into holdoff.pulse as p (level, what, at, namespace, name, outcome, count, class)
    select x.level, x.what, to_timestamp(floor(extract(epoch from n.now) / x.width) * x.width), x.namespace, x.name,
        x.outcome, x.count, x.class
    from (select clock_timestamp() as now) n,
        unnest($1::smallint[], $2::smallint[], $3::int[], $4::text[], $5::text[], $6::smallint[], $7::bigint[],
            $8::text[]) as x(level, what, width, namespace, name, outcome, count, class)
    on conflict (level, what, at, namespace, name, outcome) do update
        set count = p.count + excluded.count, class = coalesce(excluded.class, p.class)";

/// Writes the counts and the node in one transaction. If it fails, the caller keeps the counts for the next write.
pub(super) async fn beat(pool: &PgPool, rows: &[PulseRow], node: Option<&NodeRow>) -> Result<()> {
    let mut tx = pool.begin().await?;
    if !rows.is_empty() {
        add(&mut tx, rows).await?;
    }
    if let Some(node) = node {
        tell(&mut tx, node).await?;
    }
    Ok(tx.commit().await?)
}

async fn add(tx: &mut PgConnection, rows: &[PulseRow]) -> Result<()> {
    let both: Vec<(Level, &PulseRow)> =
        Level::ALL.into_iter().flat_map(|level| rows.iter().map(move |row| (level, row))).collect();
    let width = |(level, row): &(Level, &PulseRow)| {
        i32::try_from(level.width(row.what).as_secs()).unwrap_or(i32::MAX)
    };
    sqlx::query(ADD)
        .bind(both.iter().map(|(level, _)| level.number).collect::<Vec<_>>())
        .bind(both.iter().map(|(_, row)| row.what as i16).collect::<Vec<_>>())
        .bind(both.iter().map(width).collect::<Vec<_>>())
        .bind(both.iter().map(|(_, row)| row.namespace.as_str()).collect::<Vec<_>>())
        .bind(both.iter().map(|(_, row)| row.name.as_str()).collect::<Vec<_>>())
        .bind(both.iter().map(|(_, row)| row.outcome).collect::<Vec<_>>())
        .bind(both.iter().map(|(_, row)| i64::try_from(row.count).unwrap_or(i64::MAX)).collect::<Vec<_>>())
        .bind(both.iter().map(|(_, row)| row.class.as_deref()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

async fn tell(tx: &mut PgConnection, node: &NodeRow) -> Result<()> {
    let tell = "insert into holdoff.nodes (id, name, version, started_at, seen_at, policies, drift, running, places,
            finished)
        values ($1, $2, $3, clock_timestamp(), clock_timestamp(), $4, $5, $6, $7, $8)
        on conflict (id) do update set seen_at = clock_timestamp(), policies = excluded.policies, drift = excluded.drift,
            running = excluded.running, places = excluded.places, finished = excluded.finished";
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
        .execute(tx)
        .await?;
    Ok(())
}

pub(super) async fn leave(pool: &PgPool, node: Uuid) -> Result<()> {
    sqlx::query("delete from holdoff.nodes where id = $1").bind(node).execute(pool).await?;
    Ok(())
}

/// Deletes counts and nodes that are too old. Rows that another transaction is deleting are skipped.
pub(super) async fn forget(pool: &PgPool) -> Result<()> {
    let old = "delete from holdoff.pulse p where p.ctid = any(array(
            select x.ctid from holdoff.pulse x where x.level = $1 and x.what in (0, 1, 2, 3, 4)
            and x.at < (select clock_timestamp()) - holdoff.span($2) limit 10000 for update skip locked))";
    for level in Level::ALL {
        // A bucket is deleted when its end is too old.
        let kept = micros(level.kept + level.rest);
        sqlx::query(old).bind(level.number).bind(kept).execute(pool).await?;
    }
    let nodes = "delete from holdoff.nodes n where n.ctid = any(array(
            select x.ctid from holdoff.nodes x where x.seen_at < (select clock_timestamp()) - holdoff.span($1)
            for update skip locked))";
    sqlx::query(nodes).bind(micros(NodeRecord::KEPT)).execute(pool).await?;
    Ok(())
}

pub(super) async fn pulse(pool: &PgPool, asked: &Asked<'_>) -> Result<Kept> {
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    sqlx::raw_sql("set local enable_hashagg = on").execute(&mut *tx).await?;
    let now: i64 = sqlx::query_scalar("select holdoff.micros(clock_timestamp())").fetch_one(&mut *tx).await?;
    let beats = "select holdoff.micros(at), coalesce(sum(count) filter (where outcome = 100), 0)::bigint,
            coalesce(sum(count) filter (where outcome = 0), 0)::bigint,
            coalesce(sum(count) filter (where outcome = 1), 0)::bigint,
            coalesce(sum(count) filter (where outcome = 2), 0)::bigint,
            coalesce(sum(count) filter (where outcome = 3), 0)::bigint,
            coalesce(sum(count) filter (where outcome between 4 and 99), 0)::bigint
        from holdoff.pulse
        where level = $1 and what = 0 and at >= 'epoch'::timestamptz + holdoff.span($2)
            and ($3::text is null or namespace = $3)
        group by at";
    let beats = sqlx::query_as(beats)
        .bind(asked.level.number)
        .bind(asked.first_beat(now))
        .bind(asked.namespace)
        .fetch_all(&mut *tx)
        .await?;
    let rest = "with sums as materialized (
            select what, namespace, name, outcome, sum(count)::bigint as count, max(at) filter (where class is not null) as at
            from holdoff.pulse
            where level = $1 and what in (1, 2, 3, 4) and at >= 'epoch'::timestamptz + holdoff.span($2)
                and ($3::text is null or namespace = $3)
            group by what, namespace, name, outcome
            order by what in (1, 2) desc, outcome = 1 desc, 5 desc limit $4
        )
        select s.what, s.namespace, s.name, s.outcome, s.count, p.class
        from sums s left join holdoff.pulse p on p.level = $1 and p.what = s.what and p.at = s.at
            and p.namespace = s.namespace and p.name = s.name and p.outcome = s.outcome";
    let rest = sqlx::query_as(rest)
        .bind(asked.level.number)
        .bind(asked.first_rest(now))
        .bind(asked.namespace)
        .bind(Pulse::MOST_ROWS)
        .fetch_all(&mut *tx)
        .await?;
    Ok(Kept { now, beats, rest })
}

pub(super) async fn nodes(pool: &PgPool) -> Result<Vec<NodeRecord>> {
    let query =
        "select name, version, holdoff.micros(started_at), holdoff.micros(seen_at), policies, drift, running,
            places, finished, seen_at > clock_timestamp() - holdoff.span($1)
        from holdoff.nodes order by 10 desc, name, started_at limit 1000";
    let rows: Vec<NodeRecordRow> =
        sqlx::query_as(query).bind(micros(NodeRecord::ALIVE)).fetch_all(pool).await?;
    Ok(rows.into_iter().map(reading::node).collect())
}
