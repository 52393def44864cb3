//! Reads steps, newest first, within a bound.

use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use sqlx::{PgConnection, PgPool, PgTransaction, Postgres, QueryBuilder, Row};

use super::claim::step_id;
use super::select::{Lanes, name, push_where};
use crate::StepId;
use crate::engine::{Table, reading};
use crate::filter::{Filter, Page};
use crate::look::{Count, Part, Seen, StepPage};
use crate::record::StepRecord;
use crate::store::Result;

/// Begins a read at one snapshot, so that a step that finishes meanwhile is in exactly one of the tables. The settings
/// make the planner read rows in key order, and plan every statement for its actual parameters.
pub(super) async fn begin(pool: &PgPool) -> Result<PgTransaction<'static>> {
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    let settings =
        "set local enable_sort = off; set local enable_bitmapscan = off; set local enable_hashagg = off;
        set local plan_cache_mode = force_custom_plan";
    sqlx::raw_sql(settings).execute(&mut *tx).await?;
    Ok(tx)
}

/// A range of keys, descending: from `below`, exclusive, to `floor`, inclusive.
#[derive(Clone, Copy, Default)]
pub(super) struct Range {
    pub(super) below: Option<StepId>,
    pub(super) floor: Option<StepId>,
}

impl Range {
    pub(super) fn push(self, query: &mut QueryBuilder<Postgres>) {
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
    tx: &mut PgConnection,
    table: Table,
    below: Option<StepId>,
    most: u32,
) -> Result<Option<StepId>> {
    let mut query = QueryBuilder::<Postgres>::new("select s.task, s.step from ");
    query.push(name(table)).push(" s where true");
    if table == Table::Aside {
        query.push(" and s.line = 2");
    }
    Range { below, floor: None }.push(&mut query);
    query.push(" order by s.task desc, s.step desc offset ").push_bind(i64::from(most) - 1).push(" limit 1");
    let floor: Option<(Uuid, i32)> = query.build_query_as().fetch_optional(tx).await?;
    Ok(floor.map(|(task, step)| step_id(task, step)))
}

pub(super) async fn look(pool: &PgPool, filter: &Filter, page: &Page) -> Result<StepPage> {
    let mut tx = begin(pool).await?;
    let lanes = Lanes::of(&mut tx, filter).await?;
    if lanes.is_empty() {
        return Ok(StepPage::default());
    }
    let wanted = Page { limit: page.limit.saturating_add(1), ..page.clone() };
    let mut parts = Vec::new();
    for table in Table::of(filter) {
        let mut floor_of_table = None;
        if filter.passes_over() {
            floor_of_table = floor(&mut tx, table, page.after, page.looked_at).await?;
        }
        let steps = select(&mut tx, filter, &lanes, &wanted, table, floor_of_table).await?;
        parts.push(Part::new(steps, wanted.limit, floor_of_table, |step| step.id));
    }
    Ok(Seen::of(parts, page.limit, |step| step.id).into())
}

pub(super) async fn count(pool: &PgPool, filter: &Filter, most: u64) -> Result<Count> {
    let mut tx = begin(pool).await?;
    let lanes = Lanes::of(&mut tx, filter).await?;
    if lanes.is_empty() {
        return Ok(Count::Exactly(0));
    }
    let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let (mut counted, mut is_all) = (0, true);
    for table in Table::of(filter) {
        let mut range = Range::default();
        if filter.passes_over() {
            range.floor = floor(&mut tx, table, None, Page::MOST_LOOKED_AT).await?;
            is_all &= range.floor.is_none();
        }
        let mut query = QueryBuilder::<Postgres>::new("select count(*) from (select from ");
        query.push(name(table)).push(" s");
        push_where(&mut query, filter, table, &lanes);
        range.push(&mut query);
        query.push(" limit ").push_bind(limit).push(") s");
        let count: i64 = query.build_query_scalar().fetch_one(&mut *tx).await?;
        counted += u64::try_from(count).unwrap_or(0);
    }
    Ok(Count::new(counted, is_all, most))
}

/// Returns the matching steps of a table, newest first, down to a floor.
pub(super) async fn select(
    tx: &mut PgConnection,
    filter: &Filter,
    lanes: &Lanes,
    page: &Page,
    table: Table,
    floor: Option<StepId>,
) -> Result<Vec<StepRecord>> {
    let mut query = QueryBuilder::<Postgres>::new(
        "select s.task, s.step, s.name, s.state, l.namespace, l.queue, l.operation, p.name, l.priority, s.destination,
            s.failures, s.rescues, s.snoozes, holdoff.micros(s.created_at), holdoff.micros(s.claimed_at),
            holdoff.micros(s.ended_at), s.class, s.message, s.format, ",
    );
    query.push(match table {
        Table::Steps | Table::Aside => {
            "s.waiting, holdoff.micros(case when s.state = 2 then s.leased_until else s.due_at end), "
        }
        Table::Done => "0, null::bigint, ",
    });
    query.push(match table {
        _ if !page.with_payloads => "null::bytea",
        Table::Steps | Table::Aside => "s.payload",
        Table::Done => "s.output",
    });
    query.push(", s.lease");
    query.push(" from ").push(name(table)).push(" s join holdoff.lanes l on l.id = s.lane");
    query.push(" left join holdoff.policies p on p.id = s.policy");
    push_where(&mut query, filter, table, lanes);
    Range { below: page.after, floor }.push(&mut query);
    query.push(" order by s.task desc, s.step desc limit ").push_bind(i64::from(page.limit));
    let rows = query.build().fetch_all(tx).await?;
    rows.iter().map(|row| Ok(step(row, table, page.with_payloads)?)).collect()
}

fn step(row: &PgRow, table: Table, with_payloads: bool) -> std::result::Result<StepRecord, sqlx::Error> {
    Ok(reading::read_step!(row, is_over: table == Table::Done, with_payload: with_payloads))
}
