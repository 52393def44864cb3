//! Reads steps, newest first, within a bound.

use sqlx::sqlite::SqliteRow;
use sqlx::types::Uuid;
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection, SqlitePool};

use super::claim::step_id;
use super::select::{name, push_where_by_key};
use crate::StepId;
use crate::engine::{Table, reading};
use crate::filter::{Filter, Page};
use crate::look::{Count, Part, Seen, StepPage};
use crate::record::StepRecord;
use crate::store::Result;

/// A range of keys, descending: from `below`, exclusive, to `floor`, inclusive.
#[derive(Clone, Copy, Default)]
pub(super) struct Range {
    pub(super) below: Option<StepId>,
    pub(super) floor: Option<StepId>,
}

impl Range {
    pub(super) fn push(self, query: &mut QueryBuilder<Sqlite>) {
        for (sign, key) in
            [(" and (s.task, s.step) < (", self.below), (" and (s.task, s.step) >= (", self.floor)]
        {
            if let Some(key) = key {
                query.push(sign).push_bind(key.task.as_uuid()).push(", ").push_bind(key.number).push(")");
            }
        }
    }
}

/// Returns the key of the last of `most` rows of a table below a key, or `None` if the table ends before that.
pub(super) async fn floor(
    tx: &mut SqliteConnection,
    table: Table,
    below: Option<StepId>,
    most: u32,
) -> Result<Option<StepId>> {
    let mut query = QueryBuilder::<Sqlite>::new("select s.task, s.step from ");
    query.push(name(table)).push(" s where true");
    if table == Table::Aside {
        query.push(" and s.state in (4, 5)");
    }
    Range { below, floor: None }.push(&mut query);
    query.push(" order by s.task desc, s.step desc limit 1 offset ").push_bind(i64::from(most) - 1);
    let floor: Option<(Uuid, i32)> = query.build_query_as().fetch_optional(tx).await?;
    Ok(floor.map(|(task, step)| step_id(task, step)))
}

/// Returns the number of rows to scan. Rows that are far apart in the file cost more if the index alone does not decide
/// whether they match, so fewer of them are scanned.
pub(super) fn gone_through(filter: &Filter, table: Table, looked_at: u32) -> u32 {
    match table {
        Table::Aside if filter.text.is_some() => looked_at.div_ceil(4),
        _ => looked_at,
    }
}

pub(super) async fn look(readers: &SqlitePool, now: i64, filter: &Filter, page: &Page) -> Result<StepPage> {
    // One snapshot for both tables: a step that finishes meanwhile is in exactly one of them.
    let mut tx = readers.begin().await?;
    let wanted = Page { limit: page.limit.saturating_add(1), ..page.clone() };
    let mut parts = Vec::new();
    for table in Table::of(filter) {
        let mut floor_of_table = None;
        if filter.passes_over() {
            floor_of_table =
                floor(&mut tx, table, page.after, gone_through(filter, table, page.looked_at)).await?;
        }
        let steps = select(&mut tx, now, filter, &wanted, table, floor_of_table).await?;
        parts.push(Part::new(steps, wanted.limit, floor_of_table, |step| step.id));
    }
    Ok(Seen::of(parts, page.limit, |step| step.id).into())
}

pub(super) async fn count(readers: &SqlitePool, now: i64, filter: &Filter, most: u64) -> Result<Count> {
    let mut tx = readers.begin().await?;
    let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let (mut counted, mut is_all) = (0, true);
    for table in Table::of(filter) {
        let mut range = Range::default();
        if filter.passes_over() {
            range.floor =
                floor(&mut tx, table, None, gone_through(filter, table, Page::MOST_LOOKED_AT)).await?;
            is_all &= range.floor.is_none();
        }
        let mut query = QueryBuilder::<Sqlite>::new("select count(*) from (select 1 from ");
        query.push(name(table)).push(" s");
        push_where_by_key(&mut query, filter, table, now);
        range.push(&mut query);
        query.push(" limit ").push_bind(limit).push(")");
        let count: i64 = query.build_query_scalar().fetch_one(&mut *tx).await?;
        counted += u64::try_from(count).unwrap_or(0);
    }
    Ok(Count::new(counted, is_all, most))
}

/// Returns the matching steps of a table, newest first, down to a floor.
pub(super) async fn select(
    tx: &mut SqliteConnection,
    now: i64,
    filter: &Filter,
    page: &Page,
    table: Table,
    floor: Option<StepId>,
) -> Result<Vec<StepRecord>> {
    let mut query = QueryBuilder::<Sqlite>::new(
        "select s.task, s.step, s.name, s.state, l.namespace, l.queue, l.operation, p.name, l.priority, s.destination,
            s.failures, s.rescues, s.snoozes, s.created_at, s.claimed_at, s.ended_at, s.class, s.message, s.format, ",
    );
    query.push(match table {
        Table::Steps | Table::Aside => "s.waiting, s.due_at, ",
        Table::Done => "0, null, ",
    });
    query.push(match table {
        _ if !page.with_payloads => "null",
        Table::Steps | Table::Aside => "s.payload",
        Table::Done => "s.output",
    });
    query.push(", s.lease");
    // The subquery selects the keys in order, from an index alone where possible, so that the page limit ends the
    // search. The join then reads the other columns. `cross` keeps the tables in this order.
    query.push(" from (select s.task, s.step from ").push(name(table)).push(" s");
    push_where_by_key(&mut query, filter, table, now);
    Range { below: page.after, floor }.push(&mut query);
    query.push(" order by s.task desc, s.step desc limit ").push_bind(i64::from(page.limit));
    query.push(") k cross join ").push(name(table)).push(" s on s.task = k.task and s.step = k.step");
    query
        .push(" cross join holdoff_lanes l on l.id = s.lane left join holdoff_policies p on p.id = s.policy");
    query.push(" order by s.task desc, s.step desc");
    let rows = query.build().fetch_all(tx).await?;
    rows.iter().map(|row| Ok(step(row, table, page.with_payloads)?)).collect()
}

fn step(row: &SqliteRow, table: Table, with_payloads: bool) -> std::result::Result<StepRecord, sqlx::Error> {
    Ok(reading::read_step!(row, is_over: table == Table::Done, with_payload: with_payloads))
}
