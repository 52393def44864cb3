//! Numbers of policies and lanes, and the paused queues and operations.

use sqlx::{PgExecutor, PgPool};

use crate::store::{LaneId, LaneLimits, Pausable, PolicyNumber, PolicyRow, Result};
use crate::{Kind, Lane};

pub(super) async fn publish(pool: &PgPool, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>> {
    let mut numbers = Vec::with_capacity(policies.len());
    for policy in policies {
        let insert = "insert into holdoff.policies (hash, name, compiled) values ($1, $2, $3::jsonb)
            on conflict (hash, name) do nothing";
        sqlx::query(insert)
            .bind(&policy.hash)
            .bind(&policy.name)
            .bind(&policy.compiled)
            .execute(pool)
            .await?;
        let number = sqlx::query_scalar("select id from holdoff.policies where hash = $1 and name = $2")
            .bind(&policy.hash)
            .bind(&policy.name)
            .fetch_one(pool)
            .await?;
        numbers.push(number);
    }
    Ok(numbers)
}

pub(super) async fn policy(pool: &PgPool, number: PolicyNumber) -> Result<Option<String>> {
    let query = "select compiled::text from holdoff.policies where id = $1";
    Ok(sqlx::query_scalar(query).bind(number).fetch_optional(pool).await?)
}

pub(super) async fn lanes(pool: &PgPool, lanes: &[Lane], limits: LaneLimits) -> Result<Vec<LaneId>> {
    let mut numbers = Vec::with_capacity(lanes.len());
    for lane in lanes {
        numbers.push(match find(pool, lane).await? {
            Some(number) => number,
            None => make(pool, lane, limits).await?,
        });
    }
    Ok(numbers)
}

async fn find(store: impl PgExecutor<'_>, lane: &Lane) -> Result<Option<LaneId>> {
    let query = "select id from holdoff.lanes
        where namespace = $1 and queue = $2 and operation = $3 and kind = $4 and priority = $5";
    let found = sqlx::query_scalar(query)
        .bind(&lane.namespace)
        .bind(&lane.queue)
        .bind(&lane.operation)
        .bind(lane.kind.code())
        .bind(i16::from(lane.priority));
    Ok(found.fetch_optional(store).await?)
}

/// Creates a lane. The paused flag is read under the same lock that pausing takes, so that neither misses the other.
/// Lanes are created one at a time, so that concurrent calls cannot exceed the limits together.
async fn make(pool: &PgPool, lane: &Lane, limits: LaneLimits) -> Result<LaneId> {
    let mut tx = pool.begin().await?;
    sqlx::query("lock table holdoff.paused in share mode").execute(&mut *tx).await?;
    sqlx::query("lock table holdoff.lanes in share row exclusive mode").execute(&mut *tx).await?;
    // Another transaction may have created it while this one waited for the lock.
    if let Some(number) = find(&mut *tx, lane).await? {
        return Ok(number);
    }
    let count = "select count(*), count(*) filter (where namespace = $1) from holdoff.lanes";
    let (in_all, in_namespace) = sqlx::query_as(count).bind(&lane.namespace).fetch_one(&mut *tx).await?;
    limits.check(lane, in_all, in_namespace)?;
    let insert = "insert into holdoff.lanes (namespace, queue, operation, kind, priority, paused)
        values ($1, $2, $3, $4, $5, exists (
            select from holdoff.paused p where p.namespace = $1
            and ((p.what = 0 and p.name = $2) or (p.what = 1 and p.name = $3))))
        on conflict (namespace, queue, operation, kind, priority) do update set kind = excluded.kind
        returning id";
    let number = sqlx::query_scalar(insert)
        .bind(&lane.namespace)
        .bind(&lane.queue)
        .bind(&lane.operation)
        .bind(lane.kind.code())
        .bind(i16::from(lane.priority))
        .fetch_one(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(number)
}

pub(super) async fn all_lanes(pool: &PgPool) -> Result<Vec<(LaneId, Lane)>> {
    let query = "select id, namespace, queue, operation, kind, priority from holdoff.lanes";
    let rows: Vec<(LaneId, String, String, String, i16, i16)> = sqlx::query_as(query).fetch_all(pool).await?;
    let lane = |(id, namespace, queue, operation, kind, priority)| {
        let priority = u8::try_from(priority).unwrap_or(u8::MAX);
        (id, Lane { namespace, queue, operation, kind: Kind::of_code(kind), priority })
    };
    Ok(rows.into_iter().map(lane).collect())
}

pub(super) async fn pause(
    pool: &PgPool,
    namespace: &str,
    what: Pausable,
    name: &str,
    paused: bool,
) -> Result<()> {
    let code: i16 = match what {
        Pausable::Queue => 0,
        Pausable::Operation => 1,
    };
    let mut tx = pool.begin().await?;
    sqlx::query("lock table holdoff.paused in share row exclusive mode").execute(&mut *tx).await?;
    let change = if paused {
        "insert into holdoff.paused (namespace, what, name) values ($1, $2, $3) on conflict do nothing"
    } else {
        "delete from holdoff.paused where namespace = $1 and what = $2 and name = $3"
    };
    sqlx::query(change).bind(namespace).bind(code).bind(name).execute(&mut *tx).await?;
    let mark = "update holdoff.lanes l set paused = exists (
            select from holdoff.paused p where p.namespace = l.namespace
            and ((p.what = 0 and p.name = l.queue) or (p.what = 1 and p.name = l.operation)))
        where l.namespace = $1";
    sqlx::query(mark).bind(namespace).execute(&mut *tx).await?;
    if !paused {
        sqlx::query("select pg_notify('holdoff', '')").execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}
