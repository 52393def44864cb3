//! Translates a filter into SQL.

use holdoff_policy::as_micros_i64;
use sqlx::{QueryBuilder, Sqlite};

use crate::engine::sql::sql;
use crate::engine::{StepTable, like_containing};
use crate::{StepFilter, StepId, StepState};

pub(super) const fn table_name(table: StepTable) -> &'static str {
    match table {
        StepTable::Steps | StepTable::Halted => "holdoff_steps",
        StepTable::Done => "holdoff_done",
    }
}

/// Appends `where …` for rows called `s`. The planner chooses the index.
pub(super) fn push_where(query: &mut QueryBuilder<Sqlite>, filter: &StepFilter, table: StepTable, now: i64) {
    push(query, filter, table, now, "");
}

/// Appends the same for rows that are read in key order. The unary plus prevents the use of other indexes.
pub(super) fn push_where_by_key(
    query: &mut QueryBuilder<Sqlite>,
    filter: &StepFilter,
    table: StepTable,
    now: i64,
) {
    push(query, filter, table, now, "+");
}

fn push(query: &mut QueryBuilder<Sqlite>, filter: &StepFilter, table: StepTable, now: i64, plus: &str) {
    query.push(if table == StepTable::Halted {
        sql!(" where s.state in ({failed}, {conflicted})")
    } else {
        " where true"
    });
    if !filter.states.is_empty() {
        let codes: Vec<String> = filter.states.iter().map(|state| state.code().to_string()).collect();
        // Only failed and conflicted steps are few enough for a lookup by state.
        let is_rare =
            filter.states.iter().all(|state| matches!(state, StepState::Failed | StepState::Conflicted));
        let plus = if is_rare { plus } else { "+" };
        query.push(" and ").push(plus).push("s.state in (").push(codes.join(", ")).push(")");
    }
    if let Some(task) = filter.task {
        query.push(" and s.task = ").push_bind(task.as_uuid());
    }
    if let Some(step) = filter.step {
        query.push(" and s.task = ").push_bind(step.task.as_uuid());
        query.push(" and s.step = ").push_bind(step.number);
    }
    push_lane(query, filter, plus);
    if let Some(destination) = &filter.destination {
        query.push(" and s.destination = ").push_bind(destination.clone());
    }
    if let Some(class) = &filter.class {
        query.push(" and s.class = ").push_bind(class.clone());
    }
    if let Some(failures) = filter.min_failures {
        query.push(" and s.failures >= ").push_bind(failures);
    }
    if let Some(failures) = filter.max_failures {
        query.push(" and s.failures <= ").push_bind(failures);
    }
    for (age, sign) in [(filter.older_than, "<="), (filter.newer_than, ">=")] {
        if let Some(age) = age {
            query.push(" and s.created_at ").push(sign).push(" ");
            query.push_bind(now.saturating_sub(as_micros_i64(age)));
        }
    }
    if let Some(age) = filter.stale_after {
        query.push(if table == StepTable::Done {
            " and false"
        } else {
            sql!(" and s.state in ({ready}, {running})")
        });
        query.push(" and s.created_at <= ").push_bind(now.saturating_sub(as_micros_i64(age)));
    }
    if let Some(token) = filter.token {
        query.push(" and s.lease = ").push_bind(i64::try_from(token).unwrap_or(i64::MAX));
    }
    if let Some(text) = &filter.text {
        let pattern = like_containing(text);
        query.push(" and (s.name like ").push_bind(pattern.clone());
        query.push(" escape '\\' or s.message like ").push_bind(pattern).push(" escape '\\')");
    }
}

fn push_lane(query: &mut QueryBuilder<Sqlite>, filter: &StepFilter, plus: &str) {
    if filter.namespace.is_none() && filter.queue.is_none() && filter.operation.is_none() {
        return;
    }
    query.push(" and ").push(plus).push("s.lane in (select id from holdoff_lanes where true");
    if let Some(namespace) = &filter.namespace {
        query.push(" and namespace = ").push_bind(namespace.clone());
    }
    if let Some(queue) = &filter.queue {
        query.push(" and queue = ").push_bind(queue.clone());
    }
    if let Some(operation) = &filter.operation {
        // GLOB is case-sensitive, like LIKE in Postgres. Its other special characters are escaped.
        let pattern: String = operation.chars().map(glob_sign).collect();
        query.push(" and operation glob ").push_bind(pattern);
    }
    query.push(")");
}

fn glob_sign(sign: char) -> String {
    match sign {
        '?' | '[' => format!("[{sign}]"),
        _ => sign.to_string(),
    }
}

/// A range of keys, descending: from `below`, exclusive, to `floor`, inclusive.
#[derive(Clone, Copy, Default)]
pub(super) struct KeyRange {
    pub(super) below: Option<StepId>,
    pub(super) floor: Option<StepId>,
}

impl KeyRange {
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
