//! Translates a filter into SQL.

use holdoff_policy::as_micros_i64;
use holdoff_sql::postgres::Session;
use sqlx::{Postgres, QueryBuilder};

use crate::engine::sql::sql;
use crate::engine::{StepTable, like_containing, like_glob};
use crate::store::Result;
use crate::{StepFilter, StepId};

pub(super) const fn table_name(table: StepTable) -> &'static str {
    match table {
        StepTable::Steps | StepTable::Halted => "holdoff.steps",
        StepTable::Done => "holdoff.done",
    }
}

/// The lanes that matching steps can be in.
pub(super) enum LaneFilter {
    /// The lanes that the filter selects: the statement looks them up.
    InStatement,
    /// All lanes (`None`), or these.
    Known(Option<Vec<i32>>),
}

impl LaneFilter {
    /// Looks up the lanes before the statement is planned. The planner searches a list that it can see by hash for each
    /// row, and a list that it cannot see from end to end.
    pub(super) async fn of(tx: &mut Session<'_>, filter: &StepFilter) -> Result<Self> {
        if !names_lanes(filter) {
            return Ok(Self::Known(None));
        }
        let mut query = QueryBuilder::<Postgres>::new("");
        push_lane_ids(&mut query, filter);
        Ok(Self::Known(Some(query.build_query_scalar().fetch_all(tx).await?)))
    }

    /// Whether no lane matches.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Known(Some(lanes)) if lanes.is_empty())
    }
}

/// Appends `where …` for rows called `s`.
pub(super) fn push_where(
    query: &mut QueryBuilder<Postgres>,
    filter: &StepFilter,
    table: StepTable,
    lanes: &LaneFilter,
) {
    query.push(if table == StepTable::Halted {
        sql!(" where s.index_state = {index.halted}")
    } else {
        " where true"
    });
    if !filter.states.is_empty() {
        let codes: Vec<i16> = filter.states.iter().map(|state| state.code()).collect();
        query.push(" and s.state = any(").push_bind(codes).push(")");
    }
    if let Some(task) = filter.task {
        query.push(" and s.task = ").push_bind(task.as_uuid());
    }
    if let Some(step) = filter.step {
        query.push(" and s.task = ").push_bind(step.task.as_uuid());
        query.push(" and s.step = ").push_bind(step.number);
    }
    match lanes {
        LaneFilter::Known(Some(lanes)) => {
            query.push(" and s.lane = any(").push_bind(lanes.clone()).push(")");
        }
        LaneFilter::InStatement if names_lanes(filter) => {
            query.push(" and s.lane = any(array(");
            push_lane_ids(query, filter);
            query.push("))");
        }
        LaneFilter::InStatement | LaneFilter::Known(None) => {}
    }
    if let Some(destination) = &filter.destination {
        query.push(" and s.destination = ").push_bind(destination.clone());
    }
    if let Some(class) = &filter.class {
        query.push(" and s.class = ").push_bind(class.clone());
    }
    if let Some(failures) = filter.min_failures {
        query.push(" and s.failures >= ").push_bind(i32::try_from(failures).unwrap_or(i32::MAX));
    }
    if let Some(failures) = filter.max_failures {
        query.push(" and s.failures <= ").push_bind(i32::try_from(failures).unwrap_or(i32::MAX));
    }
    for (age, sign) in [(filter.older_than, "<="), (filter.newer_than, ">=")] {
        if let Some(age) = age {
            query.push(" and s.created_at ").push(sign).push(" clock_timestamp() - holdoff.span(");
            query.push_bind(as_micros_i64(age)).push(")");
        }
    }
    if let Some(age) = filter.stale_after {
        query.push(if table == StepTable::Done {
            " and false"
        } else {
            sql!(" and s.state in ({ready}, {running})")
        });
        query
            .push(" and s.created_at <= clock_timestamp() - holdoff.span(")
            .push_bind(as_micros_i64(age))
            .push(")");
    }
    if let Some(token) = filter.token {
        query.push(" and s.lease = ").push_bind(i64::try_from(token).unwrap_or(i64::MAX));
    }
    if let Some(text) = &filter.text {
        let pattern = like_containing(text);
        query.push(" and (s.name ilike ").push_bind(pattern.clone());
        query.push(" or s.message ilike ").push_bind(pattern).push(")");
    }
}

const fn names_lanes(filter: &StepFilter) -> bool {
    filter.namespace.is_some() || filter.queue.is_some() || filter.operation.is_some()
}

fn push_lane_ids(query: &mut QueryBuilder<Postgres>, filter: &StepFilter) {
    query.push("select id from holdoff.lanes where true");
    if let Some(namespace) = &filter.namespace {
        query.push(" and namespace = ").push_bind(namespace.clone());
    }
    if let Some(queue) = &filter.queue {
        query.push(" and queue = ").push_bind(queue.clone());
    }
    if let Some(operation) = &filter.operation {
        query.push(" and operation like ").push_bind(like_glob(operation));
    }
}

/// A range of keys, descending: from `below`, exclusive, to `floor`, inclusive.
#[derive(Clone, Copy, Default)]
pub(super) struct KeyRange {
    pub(super) below: Option<StepId>,
    pub(super) floor: Option<StepId>,
}

impl KeyRange {
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
