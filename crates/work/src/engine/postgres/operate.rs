//! The actions of operators on steps: each changes a set of steps in one transaction and returns their number.

use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder};

use super::select::{Lanes, push_where};
use crate::engine::Table;
use crate::filter::{Action, Filter};
use crate::store::Result;

pub(super) async fn act(pool: &PgPool, filter: &Filter, action: &Action) -> Result<u64> {
    let mut tx = pool.begin().await?;
    let count = match action {
        Action::Retry => revive(&mut tx, filter, "s.state in (4, 5)", None).await?,
        Action::Resolve(payload) => revive(&mut tx, filter, "s.state = 5", payload.as_ref()).await?,
        Action::Discard => end(&mut tx, filter, "s.state in (4, 5)", 6, false).await?,
        Action::Cancel => end(&mut tx, filter, "true", 7, true).await?,
    };
    if count > 0 {
        sqlx::query("select pg_notify('holdoff', '')").execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(count)
}

/// Returns the number of steps that the action would change.
pub(super) async fn affected(pool: &PgPool, filter: &Filter, action: &Action) -> Result<u64> {
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    super::read::think_freely(&mut tx).await?;
    let (before, condition, after) = match action {
        Action::Retry | Action::Discard => ("", " and s.state in (4, 5)", ""),
        Action::Resolve(_) => ("", " and s.state = 5", ""),
        Action::Cancel => (" c where c.task in (select s.task from holdoff.steps", "", ")"),
    };
    let mut query = QueryBuilder::<Postgres>::new("select count(*) from holdoff.steps");
    query.push(before).push(" s");
    push_where(&mut query, filter, Table::Steps, &Lanes::Asked);
    query.push(condition).push(after);
    let count: i64 = query.build_query_scalar().fetch_one(&mut *tx).await?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Makes steps ready again, with their attempts reset.
async fn revive(
    tx: &mut PgConnection,
    filter: &Filter,
    condition: &'static str,
    payload: Option<&crate::Payload>,
) -> Result<u64> {
    let mut query = QueryBuilder::<Postgres>::new("with x as (select s.task, s.step from holdoff.steps s");
    push_where(&mut query, filter, Table::Steps, &Lanes::Asked);
    query.push(" and ").push(condition).push(
        " order by s.task, s.step for update)
        update holdoff.steps s set state = 1, line = 1, lease = s.lease + 1, failures = 0, rescues = 0, refreshed = false,
            last_delay_us = 0, first_at = null, ended_at = null, due_at = clock_timestamp()",
    );
    if let Some(payload) = payload {
        query.push(", format = ").push_bind(payload.format.code());
        query.push(", payload = ").push_bind(payload.bytes.to_vec());
    }
    query.push(" from x where s.task = x.task and s.step = x.step");
    Ok(query.build().execute(tx).await?.rows_affected())
}

/// Moves steps into the history, alone or with their whole tasks. A worker that still holds a step is fenced, because
/// the step's row is gone.
async fn end(
    tx: &mut PgConnection,
    filter: &Filter,
    condition: &'static str,
    state: i16,
    whole_tasks: bool,
) -> Result<u64> {
    let mut query = QueryBuilder::<Postgres>::new("with x as (select s.task, s.step from holdoff.steps s");
    push_where(&mut query, filter, Table::Steps, &Lanes::Asked);
    query
        .push(" and ")
        .push(condition)
        .push(" order by s.task, s.step for update), gone as (delete from holdoff.steps s using ");
    query.push(if whole_tasks {
        "(select distinct task from x) x where s.task = x.task"
    } else {
        "x where s.task = x.task and s.step = x.step"
    });
    query.push(
        " returning s.*)
        insert into holdoff.done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
            ended_at, failures, rescues, snoozes, name, destination, class, message)
        select task, step, lane, policy, ",
    );
    query.push_bind(state).push(
        ", 0, worker, lease, created_at, claimed_at, clock_timestamp(), failures, rescues, snoozes, name, destination,
            class, message from gone",
    );
    Ok(query.build().execute(tx).await?.rows_affected())
}
