//! The actions of operators on steps: each changes a set of steps in one transaction and returns their number.

use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

use super::Write;
use super::select::push_where;
use crate::engine::Table;
use crate::filter::{Action, Filter};
use crate::store::Result;

pub(super) async fn act(mut write: Write, filter: &Filter, action: &Action) -> Result<u64> {
    let (tx, now) = (&mut *write.tx, write.now);
    let count = match action {
        Action::Retry => revive(tx, now, filter, "s.state in (4, 5)", None).await?,
        Action::Resolve(payload) => revive(tx, now, filter, "s.state = 5", payload.as_ref()).await?,
        Action::Discard => end(tx, now, filter, "s.state in (4, 5)", 6, false).await?,
        Action::Cancel => end(tx, now, filter, "true", 7, true).await?,
    };
    write.tx.commit().await?;
    Ok(count)
}

/// Returns the number of steps that the action would change.
pub(super) async fn affected(
    readers: &SqlitePool,
    now: i64,
    filter: &Filter,
    action: &Action,
) -> Result<u64> {
    let (before, condition, after) = match action {
        Action::Retry | Action::Discard => ("", " and s.state in (4, 5)", ""),
        Action::Resolve(_) => ("", " and s.state = 5", ""),
        Action::Cancel => (" c where c.task in (select s.task from holdoff_steps", "", ")"),
    };
    let mut query = QueryBuilder::<Sqlite>::new("select count(*) from holdoff_steps");
    query.push(before).push(" s");
    push_where(&mut query, filter, Table::Steps, now);
    query.push(condition).push(after);
    let count: i64 = query.build_query_scalar().fetch_one(readers).await?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Makes steps ready again, with their attempts reset.
async fn revive(
    tx: &mut SqliteConnection,
    now: i64,
    filter: &Filter,
    condition: &'static str,
    payload: Option<&crate::Payload>,
) -> Result<u64> {
    let mut query = QueryBuilder::<Sqlite>::new(
        "update holdoff_steps set state = 1, lease = lease + 1, failures = 0, rescues = 0, refreshed = 0,
            last_delay_us = 0, first_at = null, ended_at = null, due_at = ",
    );
    query.push_bind(now);
    if let Some(payload) = payload {
        query.push(", format = ").push_bind(payload.format.code());
        query.push(", payload = ").push_bind(payload.bytes.to_vec());
    }
    query.push(" where (task, step) in (select s.task, s.step from holdoff_steps s");
    push_where(&mut query, filter, Table::Steps, now);
    query.push(" and ").push(condition).push(")");
    Ok(query.build().execute(tx).await?.rows_affected())
}

/// Moves steps into the history, alone or with their whole tasks. A worker that still holds a step is fenced, because
/// the step's row is gone.
async fn end(
    tx: &mut SqliteConnection,
    now: i64,
    filter: &Filter,
    condition: &'static str,
    state: i16,
    whole_tasks: bool,
) -> Result<u64> {
    sqlx::query("create temp table if not exists holdoff_ending (task blob, step integer)")
        .execute(&mut *tx)
        .await?;
    sqlx::query("delete from temp.holdoff_ending").execute(&mut *tx).await?;
    let mut query = QueryBuilder::<Sqlite>::new(
        "insert into temp.holdoff_ending select s.task, s.step from holdoff_steps s",
    );
    if whole_tasks {
        query.push(" where s.task in (select s.task from holdoff_steps s");
    }
    push_where(&mut query, filter, Table::Steps, now);
    query.push(" and ").push(condition);
    if whole_tasks {
        query.push(")");
    }
    query.build().execute(&mut *tx).await?;
    let keep = "insert into holdoff_done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
            ended_at, failures, rescues, snoozes, name, destination, class, message)
        select s.task, s.step, s.lane, s.policy, ?1, 0, s.worker, s.lease, s.created_at, s.claimed_at, ?2, s.failures,
            s.rescues, s.snoozes, s.name, s.destination, s.class, s.message
        from temp.holdoff_ending x cross join holdoff_steps s on s.task = x.task and s.step = x.step";
    sqlx::query(keep).bind(state).bind(now).execute(&mut *tx).await?;
    let delete =
        "delete from holdoff_steps where (task, step) in (select task, step from temp.holdoff_ending)";
    Ok(sqlx::query(delete).execute(tx).await?.rows_affected())
}
