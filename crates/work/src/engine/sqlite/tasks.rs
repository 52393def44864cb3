//! Lists of tasks: which, and then what their steps say.

use sqlx::types::Uuid;
use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use super::rows::Rows;
use super::select::{Table, push_where};
use crate::TaskId;
use crate::engine::reading::{self, TaskRow};
use crate::filter::Filter;
use crate::record::TaskSummary;
use crate::store::Result;

pub(super) async fn tasks(
    readers: &SqlitePool,
    now: i64,
    filter: &Filter,
    before: Option<TaskId>,
    limit: u32,
) -> Result<Vec<TaskSummary>> {
    let mut tx = readers.begin().await?;
    let mut ids: Vec<Uuid> = Vec::new();
    for table in [Table::Steps, Table::Done] {
        let mut query = QueryBuilder::<Sqlite>::new("select distinct s.task from ");
        query.push(table.name()).push(" s");
        push_where(&mut query, filter, table, now);
        if let Some(before) = before {
            query.push(" and s.task < ").push_bind(before.as_uuid());
        }
        query.push(" order by s.task desc limit ").push_bind(i64::from(limit));
        ids.extend(query.build_query_scalar::<Uuid>().fetch_all(&mut *tx).await?);
    }
    ids.sort_unstable();
    ids.dedup();
    let mut wanted = Rows::new();
    for id in ids.iter().rev().take(limit as usize) {
        wanted.step(TaskId::from_uuid(*id).step(0));
    }
    let wanted = wanted.finish();
    let mut rows: Vec<TaskRow> = Vec::new();
    for table in [Table::Steps, Table::Done] {
        let mut query = QueryBuilder::<Sqlite>::new(
            "select s.task, s.state, count(*), min(s.created_at), max(s.ended_at), min(l.namespace),
                min(case when s.step = 0 then l.operation end)
            from (select unhex(value ->> 0) as task from json_each(",
        );
        query.push_bind(wanted.clone()).push(")) x cross join ").push(table.name());
        query.push(" s on s.task = x.task join holdoff_lanes l on l.id = s.lane group by s.task, s.state");
        rows.extend(query.build_query_as::<TaskRow>().fetch_all(&mut *tx).await?);
    }
    Ok(reading::tasks(rows))
}
