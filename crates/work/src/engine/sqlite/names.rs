//! Numbers of policies and lanes, and the paused queues and operations.

use sqlx::{SqliteConnection, SqlitePool};

use super::Write;
use crate::store::{LaneId, LaneLimits, Pausable, PolicyNumber, PolicyRow, Result};
use crate::{Kind, Lane};

pub(super) async fn publish(mut write: Write, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>> {
    let mut numbers = Vec::with_capacity(policies.len());
    for policy in policies {
        let insert =
            "insert into holdoff_policies (hash, name, compiled, published_at) values (?1, ?2, ?3, ?4)
            on conflict (hash, name) do update set hash = excluded.hash returning id";
        let number = sqlx::query_scalar(insert)
            .bind(&policy.hash)
            .bind(&policy.name)
            .bind(&policy.compiled)
            .bind(write.now)
            .fetch_one(&mut *write.tx)
            .await?;
        numbers.push(number);
    }
    write.tx.commit().await?;
    Ok(numbers)
}

pub(super) async fn lanes(mut write: Write, lanes: &[Lane], limits: LaneLimits) -> Result<Vec<LaneId>> {
    let mut numbers = Vec::with_capacity(lanes.len());
    for lane in lanes {
        numbers.push(match find(&mut write.tx, lane).await? {
            Some(number) => number,
            None => make(&mut write.tx, lane, limits).await?,
        });
    }
    write.tx.commit().await?;
    Ok(numbers)
}

async fn find(tx: &mut SqliteConnection, lane: &Lane) -> Result<Option<LaneId>> {
    let query = "select id from holdoff_lanes
        where namespace = ?1 and queue = ?2 and operation = ?3 and kind = ?4 and priority = ?5";
    let found = sqlx::query_scalar(query)
        .bind(&lane.namespace)
        .bind(&lane.queue)
        .bind(&lane.operation)
        .bind(lane.kind.code())
        .bind(lane.priority);
    Ok(found.fetch_optional(tx).await?)
}

async fn make(tx: &mut SqliteConnection, lane: &Lane, limits: LaneLimits) -> Result<LaneId> {
    let count = "select count(*), count(*) filter (where namespace = ?1) from holdoff_lanes";
    let (in_all, in_namespace) = sqlx::query_as(count).bind(&lane.namespace).fetch_one(&mut *tx).await?;
    limits.check(lane, in_all, in_namespace)?;
    let insert = "insert into holdoff_lanes (namespace, queue, operation, kind, priority, paused)
        values (?1, ?2, ?3, ?4, ?5, exists (
            select 1 from holdoff_paused p where p.namespace = ?1
            and ((p.what = 0 and p.name = ?2) or (p.what = 1 and p.name = ?3))))
        returning id";
    let number = sqlx::query_scalar(insert)
        .bind(&lane.namespace)
        .bind(&lane.queue)
        .bind(&lane.operation)
        .bind(lane.kind.code())
        .bind(lane.priority);
    Ok(number.fetch_one(tx).await?)
}

pub(super) async fn all_lanes(pool: &SqlitePool) -> Result<Vec<(LaneId, Lane)>> {
    let query = "select id, namespace, queue, operation, kind, priority from holdoff_lanes";
    let rows: Vec<(LaneId, String, String, String, i16, i16)> = sqlx::query_as(query).fetch_all(pool).await?;
    let lane = |(id, namespace, queue, operation, kind, priority)| {
        let priority = u8::try_from(priority).unwrap_or(u8::MAX);
        (id, Lane { namespace, queue, operation, kind: Kind::of_code(kind), priority })
    };
    Ok(rows.into_iter().map(lane).collect())
}

pub(super) async fn pause(
    mut write: Write,
    namespace: &str,
    what: Pausable,
    name: &str,
    paused: bool,
) -> Result<()> {
    let code: i16 = match what {
        Pausable::Queue => 0,
        Pausable::Operation => 1,
    };
    let tx: &mut SqliteConnection = &mut write.tx;
    let change = if paused {
        "insert into holdoff_paused (namespace, what, name, since) values (?1, ?2, ?3, ?4) on conflict do nothing"
    } else {
        "delete from holdoff_paused where namespace = ?1 and what = ?2 and name = ?3 and ?4 is not null"
    };
    sqlx::query(change).bind(namespace).bind(code).bind(name).bind(write.now).execute(&mut *tx).await?;
    let mark = "update holdoff_lanes as l set paused = exists (
            select 1 from holdoff_paused p where p.namespace = l.namespace
            and ((p.what = 0 and p.name = l.queue) or (p.what = 1 and p.name = l.operation)))
        where l.namespace = ?1";
    sqlx::query(mark).bind(namespace).execute(&mut *tx).await?;
    write.tx.commit().await?;
    Ok(())
}
