//! Accepts tasks.

use std::collections::{BTreeSet, HashMap, HashSet};

use holdoff_policy::as_micros_i64;
use holdoff_sql::postgres::Session;
use sqlx::types::Uuid;

use crate::engine::columns::{DedupColumns, list};
use crate::engine::sql::sql;
use crate::store::{LaneId, NewTask, Result, Submitted};
use crate::{Error, TaskId};

/// Accepts tasks, as part of the caller's transaction. The caller notifies the workers after the commit. If a lane was
/// retired since its number was looked up, no step is inserted.
pub(crate) async fn submit(tx: &mut Session<'_>, tasks: &[NewTask], again: bool) -> Result<Vec<Submitted>> {
    let mut submitted: Vec<Submitted> = tasks.iter().map(|task| Submitted::Created(task.id)).collect();
    if tasks.iter().any(|task| task.dedup.is_some()) {
        find_duplicates(tx, tasks, &mut submitted).await?;
    }
    let known = if again { known(tx, tasks).await? } else { HashSet::new() };
    let is_new = |(task, result): &(&NewTask, &Submitted)| {
        **result == Submitted::Created(task.id) && !known.contains(&task.id.as_uuid())
    };
    let new: Vec<&NewTask> = tasks.iter().zip(&submitted).filter(is_new).map(|(task, _)| task).collect();
    insert_steps(tx, &new).await?;
    if new.iter().any(|task| !task.edges.is_empty()) {
        insert_edges(tx, &new).await?;
    }
    Ok(submitted)
}

/// Returns the tasks that an earlier call, whose response was lost, has already submitted.
async fn known(tx: &mut Session<'_>, tasks: &[NewTask]) -> Result<HashSet<Uuid>> {
    let ids: Vec<Uuid> = tasks.iter().map(|task| task.id.as_uuid()).collect();
    let query = "select task from holdoff.steps where task = any($1) union select task from holdoff.done where task = any($1)";
    Ok(sqlx::query_scalar(query).bind(ids).fetch_all(tx).await?.into_iter().collect())
}

/// Takes the deduplication keys. A key stays with its task while the task is live, and until the retention is over.
async fn find_duplicates(tx: &mut Session<'_>, tasks: &[NewTask], submitted: &mut [Submitted]) -> Result<()> {
    let (mut namespaces, mut keys, mut ids, mut retentions) = (vec![], vec![], vec![], vec![]);
    let mut first = HashMap::new();
    for task in tasks {
        let Some(dedup) = &task.dedup else { continue };
        let key = (task.namespace.as_str(), dedup.key.as_str());
        if first.contains_key(&key) {
            continue;
        }
        first.insert(key, task.id);
        namespaces.push(key.0);
        keys.push(key.1);
        ids.push(task.id.as_uuid());
        retentions.push(as_micros_i64(dedup.retention));
    }
    // Keys are locked in sorted order, so that two batches with the same keys cannot deadlock.
    let lock = "insert into holdoff.dedup as d (namespace, key, task, until)
        select n, k, t, clock_timestamp() + holdoff.span(r)
        from unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[]) as x(n, k, t, r) order by n, k
        on conflict (namespace, key) do update set until = d.until";
    sqlx::query(lock).bind(&namespaces).bind(&keys).bind(&ids).bind(&retentions).execute(&mut *tx).await?;
    // A later statement looks for live tasks. The statement that waited for a lock would see the key of the task that was
    // submitted meanwhile, but not its steps.
    let take = "update holdoff.dedup d set task = x.t, until = clock_timestamp() + holdoff.span(x.r)
        from unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[]) as x(n, k, t, r)
        where d.namespace = x.n and d.key = x.k and d.task <> x.t and d.until < clock_timestamp()
            and not exists (select from holdoff.steps s where s.task = d.task)";
    sqlx::query(take).bind(&namespaces).bind(&keys).bind(&ids).bind(&retentions).execute(&mut *tx).await?;
    let query = sql!(
        "select ",
        list!(DedupColumns, Postgres),
        " from holdoff.dedup d
        join unnest($1::text[], $2::text[]) as x(n, k) on d.namespace = x.n and d.key = x.k"
    );
    let rows = sqlx::query(query).bind(&namespaces).bind(&keys).fetch_all(&mut *tx).await?;
    let taken = DedupColumns::read(&rows)?;
    let taken: HashMap<(&str, &str), Uuid> =
        taken.iter().map(|row| ((row.namespace.as_str(), row.key.as_str()), row.task)).collect();
    for (task, result) in tasks.iter().zip(submitted) {
        let Some(dedup) = &task.dedup else { continue };
        let holder = taken.get(&(task.namespace.as_str(), dedup.key.as_str()));
        if let Some(holder) = holder.filter(|holder| **holder != task.id.as_uuid()) {
            *result = Submitted::Duplicate(TaskId::from_uuid(*holder));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Columns<'a> {
    task: Vec<Uuid>,
    step: Vec<i32>,
    lane: Vec<i32>,
    policy: Vec<i32>,
    format: Vec<i16>,
    delay_us: Vec<i64>,
    parents: Vec<i32>,
    children: Vec<i32>,
    name: Vec<Option<&'a str>>,
    destination: Vec<Option<&'a str>>,
    trace: Vec<Option<&'a str>>,
    payload: Vec<Option<&'a [u8]>>,
    expires_us: Vec<Option<i64>>,
}

async fn insert_steps(tx: &mut Session<'_>, tasks: &[&NewTask]) -> Result<()> {
    let mut columns = Columns::default();
    for task in tasks {
        for (number, step) in (0..).zip(&task.steps) {
            columns.task.push(task.id.as_uuid());
            columns.step.push(number);
            columns.lane.push(step.lane);
            columns.policy.push(step.policy);
            columns.format.push(step.payload.format.code());
            columns.delay_us.push(as_micros_i64(step.delay));
            columns.parents.push(step.parents);
            columns.children.push(step.children);
            columns.name.push(step.name.as_deref());
            columns.destination.push(step.destination.as_deref());
            columns.trace.push(task.trace.as_deref());
            columns.payload.push(Some(&step.payload.bytes[..]).filter(|bytes| !bytes.is_empty()));
            columns.expires_us.push(step.expires_in.map(as_micros_i64));
        }
    }
    if columns.task.is_empty() {
        return Ok(());
    }
    let insert = sql!("insert into holdoff.steps (task, step, lane, policy, state, index_state, format, due_at, created_at, delay_us,
            waiting, parents, children, name, destination, trace, payload, expires_at)
        select t, s, l, p, case when w = 0 then {ready} else {blocked} end,
            case when w = 0 then {index.claimable} else {index.none} end, f, now + holdoff.span(d), now, d, w, w, c, n, h, x, b,
            now + holdoff.span(e)
        from unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::smallint[], $6::bigint[], $7::int[], $8::int[],
            $9::text[], $10::text[], $11::text[], $12::bytea[], $13::bigint[]) as r(t, s, l, p, f, d, w, c, n, h, x, b, e),
            (select clock_timestamp() as now) clock
        where (select count(*) from holdoff.lanes where id = any($14::int[]) and retired_at is null) = cardinality($14::int[])");
    let lanes: BTreeSet<LaneId> = columns.lane.iter().copied().collect();
    let inserted = sqlx::query(insert)
        .bind(columns.task)
        .bind(columns.step)
        .bind(columns.lane)
        .bind(columns.policy)
        .bind(columns.format)
        .bind(columns.delay_us)
        .bind(columns.parents)
        .bind(columns.children)
        .bind(columns.name)
        .bind(columns.destination)
        .bind(columns.trace)
        .bind(columns.payload)
        .bind(columns.expires_us)
        .bind(Vec::from_iter(lanes))
        .execute(tx)
        .await?;
    if inserted.rows_affected() == 0 { Err(Error::LaneRemoved) } else { Ok(()) }
}

async fn insert_edges(tx: &mut Session<'_>, tasks: &[&NewTask]) -> Result<()> {
    let (mut ids, mut parents, mut children) = (vec![], vec![], vec![]);
    for task in tasks {
        for (parent, child) in &task.edges {
            ids.push(task.id.as_uuid());
            parents.push(*parent);
            children.push(*child);
        }
    }
    let insert = "insert into holdoff.edges (task, parent, child) select * from unnest($1::uuid[], $2::int[], $3::int[])";
    sqlx::query(insert).bind(ids).bind(parents).bind(children).execute(tx).await?;
    Ok(())
}
