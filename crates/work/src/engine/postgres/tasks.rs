//! Lists of tasks: which, and then what their steps say.

use sqlx::types::Uuid;
use sqlx::{PgPool, Postgres, QueryBuilder};

use super::read::think_freely;
use super::select::{Table, push_where};
use crate::TaskId;
use crate::engine::reading::{self, TaskRow};
use crate::filter::Filter;
use crate::record::TaskSummary;
use crate::store::Result;

pub(super) async fn tasks(
    pool: &PgPool,
    filter: &Filter,
    before: Option<TaskId>,
    limit: u32,
) -> Result<Vec<TaskSummary>> {
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    think_freely(&mut tx).await?;
    let mut ids: Vec<Uuid> = Vec::new();
    for table in [Table::Steps, Table::Done] {
        let mut query = QueryBuilder::<Postgres>::new("select distinct s.task from ");
        query.push(table.name()).push(" s");
        push_where(&mut query, filter, table);
        if let Some(before) = before {
            query.push(" and s.task < ").push_bind(before.as_uuid());
        }
        query.push(" order by s.task desc limit ").push_bind(i64::from(limit));
        ids.extend(query.build_query_scalar::<Uuid>().fetch_all(&mut *tx).await?);
    }
    ids.sort_unstable();
    ids.dedup();
    let ids: Vec<Uuid> = ids.into_iter().rev().take(limit as usize).collect();
    let mut rows: Vec<TaskRow> = Vec::new();
    for table in [Table::Steps, Table::Done] {
        let mut query = QueryBuilder::<Postgres>::new(
            "select s.task, s.state, count(*), holdoff.micros(min(s.created_at)), holdoff.micros(max(s.ended_at)),
                min(l.namespace), min(case when s.step = 0 then l.operation end) from ",
        );
        query.push(table.name()).push(" s join holdoff.lanes l on l.id = s.lane where s.task = any(");
        query.push_bind(ids.clone()).push(") group by s.task, s.state");
        rows.extend(query.build_query_as::<TaskRow>().fetch_all(&mut *tx).await?);
    }
    Ok(reading::tasks(rows))
}
