//! Accepts tasks.

use std::collections::{BTreeSet, HashMap};

use holdoff_policy::as_micros_i64;
use sqlx::SqliteConnection;
use sqlx::types::Uuid;

use super::json_rows::JsonRows;
use crate::engine::sql::sql;
use crate::store::{Dedup, LaneId, NewTask, Result, Submitted};
use crate::{Error, TaskId};

/// Accepts tasks, as part of the caller's transaction. If a lane was retired since its number was looked up, no step is
/// inserted.
pub(crate) async fn submit(
    tx: &mut SqliteConnection,
    now: i64,
    tasks: &[NewTask],
    again: bool,
) -> Result<Vec<Submitted>> {
    let mut submitted = Vec::with_capacity(tasks.len());
    let mut new = Vec::with_capacity(tasks.len());
    let mut taken = HashMap::new();
    for task in tasks {
        let holder = match &task.dedup {
            Some(dedup) => take_key(tx, now, task, dedup, &mut taken).await?,
            None => task.id,
        };
        if holder != task.id {
            submitted.push(Submitted::Duplicate(holder));
            continue;
        }
        if !(again && is_known(tx, task.id).await?) {
            new.push(task);
        }
        submitted.push(Submitted::Created(task.id));
    }
    insert_steps(tx, now, &new).await?;
    if new.iter().any(|task| !task.edges.is_empty()) {
        insert_edges(tx, &new).await?;
    }
    Ok(submitted)
}

/// Whether an earlier call, whose response was lost, has already submitted the task.
async fn is_known(tx: &mut SqliteConnection, task: TaskId) -> Result<bool> {
    let query = "select exists (select 1 from holdoff_steps where task = ?1) or exists (select 1 from holdoff_done where task = ?1)";
    Ok(sqlx::query_scalar(query).bind(task.as_uuid()).fetch_one(tx).await?)
}

/// Takes the deduplication key, and returns the task that holds it. A key stays with its task while the task is live,
/// and until the retention is over.
async fn take_key<'t>(
    tx: &mut SqliteConnection,
    now: i64,
    task: &'t NewTask,
    dedup: &'t Dedup,
    taken: &mut HashMap<(&'t str, &'t str), TaskId>,
) -> Result<TaskId> {
    let key = (task.namespace.as_str(), dedup.key.as_str());
    if let Some(holder) = taken.get(&key) {
        return Ok(*holder);
    }
    let take = "insert into holdoff_dedup as d (namespace, key, task, until) values (?1, ?2, ?3, ?4 + ?5)
        on conflict (namespace, key) do update set task = excluded.task, until = excluded.until
        where d.until < ?4 and not exists (select 1 from holdoff_steps s where s.task = d.task)";
    sqlx::query(take)
        .bind(key.0)
        .bind(key.1)
        .bind(task.id.as_uuid())
        .bind(now)
        .bind(as_micros_i64(dedup.retention))
        .execute(&mut *tx)
        .await?;
    let look = "select task from holdoff_dedup where namespace = ?1 and key = ?2";
    let holder: Uuid = sqlx::query_scalar(look).bind(key.0).bind(key.1).fetch_one(tx).await?;
    let holder = TaskId::from_uuid(holder);
    taken.insert(key, holder);
    Ok(holder)
}

async fn insert_steps(tx: &mut SqliteConnection, now: i64, tasks: &[&NewTask]) -> Result<()> {
    let mut rows = JsonRows::new();
    for task in tasks {
        for (number, step) in (0..).zip(&task.steps) {
            rows.step(task.id.step(number))
                .number(step.lane.into())
                .number(step.policy.into())
                .number(step.payload.format.code().into())
                .number(as_micros_i64(step.delay))
                .number(step.parents.into())
                .number(step.children.into())
                .text(step.name.as_deref())
                .text(step.destination.as_deref())
                .text(task.trace.as_deref())
                .bytes(Some(&step.payload.bytes[..]).filter(|bytes| !bytes.is_empty()))
                .optional(step.expires_in.map(as_micros_i64));
        }
    }
    let lanes: BTreeSet<LaneId> = tasks.iter().flat_map(|task| &task.steps).map(|step| step.lane).collect();
    if lanes.is_empty() {
        return Ok(());
    }
    let insert = sql!("insert into holdoff_steps (task, step, lane, policy, state, format, due_at, created_at, delay_us,
            waiting, parents, children, name, destination, trace, payload, expires_at)
        select unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, iif(value ->> 6 = 0, {ready}, {blocked}), value ->> 4,
            ?2 + (value ->> 5), ?2, value ->> 5, value ->> 6, value ->> 6, value ->> 7, value ->> 8, value ->> 9,
            value ->> 10, unhex(value ->> 11), ?2 + (value ->> 12)
        from json_each(?1)
        where (select count(*) from holdoff_lanes where id in (select value from json_each(?3)) and retired_at is null)
            = json_array_length(?3)");
    let lanes = serde_json::json!(lanes).to_string();
    let inserted = sqlx::query(insert).bind(rows.finish()).bind(now).bind(lanes).execute(tx).await?;
    if inserted.rows_affected() == 0 { Err(Error::LaneRemoved) } else { Ok(()) }
}

async fn insert_edges(tx: &mut SqliteConnection, tasks: &[&NewTask]) -> Result<()> {
    let mut rows = JsonRows::new();
    for task in tasks {
        for (parent, child) in &task.edges {
            rows.step(task.id.step(*parent)).number((*child).into());
        }
    }
    let insert = "insert into holdoff_edges (task, parent, child)
        select unhex(value ->> 0), value ->> 1, value ->> 2 from json_each(?1)";
    sqlx::query(insert).bind(rows.finish()).execute(tx).await?;
    Ok(())
}
