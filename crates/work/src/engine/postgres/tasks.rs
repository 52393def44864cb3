//! Lists tasks: first their ids, then summaries computed from their steps.

use sqlx::types::Uuid;
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder};

use super::look::{begin, floor};
use super::select::{Lanes, name, push_where};
use crate::TaskId;
use crate::engine::Table;
use crate::engine::reading::{self, TaskRow};
use crate::filter::{Filter, Page};
use crate::look::{Part, Seen, TasksSeen};
use crate::record::TaskSummary;
use crate::store::Result;

pub(super) async fn tasks(
    pool: &PgPool,
    filter: &Filter,
    before: Option<TaskId>,
    limit: u32,
) -> Result<TasksSeen> {
    let mut tx = begin(pool).await?;
    let lanes = Lanes::of(&mut tx, filter).await?;
    if lanes.is_empty() {
        return Ok(TasksSeen::default());
    }
    let wanted = limit.saturating_add(1);
    let mut parts = Vec::new();
    for table in Table::of(filter) {
        let mut floor_of_table = None;
        if filter.passes_over() {
            // The last task is read with all its steps.
            let below = before.map(|task| task.step(0));
            floor_of_table = floor(&mut tx, table, below, Page::MOST_LOOKED_AT).await?.map(|step| step.task);
        }
        let mut query = QueryBuilder::<Postgres>::new("select distinct s.task from ");
        query.push(name(table)).push(" s");
        push_where(&mut query, filter, table, &lanes);
        for (sign, task) in [(" and s.task < ", before), (" and s.task >= ", floor_of_table)] {
            if let Some(task) = task {
                query.push(sign).push_bind(task.as_uuid());
            }
        }
        query.push(" order by s.task desc limit ").push_bind(i64::from(wanted));
        let found = query.build_query_scalar::<Uuid>().fetch_all(&mut *tx).await?;
        let found = found.into_iter().map(TaskId::from_uuid).collect();
        parts.push(Part::new(found, wanted, floor_of_table, |task: &TaskId| *task));
    }
    let Seen { found, next, .. } = Seen::of(parts, limit, |task| *task);
    Ok(TasksSeen { tasks: summaries(&mut tx, &found).await?, next })
}

/// Returns summaries of these tasks, computed from their steps, newest first.
pub(super) async fn summaries(tx: &mut PgConnection, tasks: &[TaskId]) -> Result<Vec<TaskSummary>> {
    let ids: Vec<Uuid> = tasks.iter().map(TaskId::as_uuid).collect();
    let mut rows: Vec<TaskRow> = Vec::new();
    for table in [Table::Steps, Table::Done] {
        let mut query = QueryBuilder::<Postgres>::new(
            "select s.task, s.state, count(*), holdoff.micros(min(s.created_at)), holdoff.micros(max(s.ended_at)),
                min(l.namespace), min(case when s.step = 0 then l.operation end) from ",
        );
        query.push(name(table)).push(" s join holdoff.lanes l on l.id = s.lane where s.task = any(");
        query.push_bind(ids.clone()).push(") group by s.task, s.state");
        rows.extend(query.build_query_as::<TaskRow>().fetch_all(&mut *tx).await?);
    }
    Ok(reading::tasks(rows))
}
