//! The queries and actions of operators.

use async_trait::async_trait;
use holdoff_sql::postgres::{Session, Transaction};
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use sqlx::{Postgres as Database, QueryBuilder};

use super::filter::{KeyRange, LaneFilter, push_where, table_name};
use super::{COMPONENT, Postgres, default_planner, notify_due, prune};
use crate::engine::columns::{
    self, AttemptColumns, EdgeColumns, SignalColumns, StepColumns, StepKeyColumns, StepPayloadColumns,
    TaskGroupColumns, list,
};
use crate::engine::sql::sql;
use crate::engine::{StepTable, permits};
use crate::query::{
    Action, MergedPage, PageRequest, ScannedTasks, StepCount, StepFilter, StepPage, TablePage,
};
use crate::record::{Moment, StepRecord, TaskRecord, TaskSummary};
use crate::store::{AdminStore, Pausable, PruneRule, Pruned, Result};
use crate::{Payload, SignalRecord, StepId, StepState, TaskId, TaskState};

#[async_trait]
impl AdminStore for Postgres {
    async fn migrate(&self) -> Result<()> {
        Ok(self.pool.migrate(&COMPONENT).await?)
    }

    async fn task(&self, id: TaskId, with_payloads: bool) -> Result<Option<TaskRecord>> {
        // One snapshot for both tables: a step that finishes meanwhile is in exactly one of them.
        let mut tx = self.pool.begin_with("begin isolation level repeatable read").await?;
        let page = PageRequest { limit: u32::MAX, with_payloads, ..PageRequest::default() };
        let (filter, lanes) = (StepFilter::task(id), LaneFilter::InStatement);
        let mut steps = select(&mut tx, &filter, &lanes, &page, StepTable::Steps, None).await?;
        steps.extend(select(&mut tx, &filter, &lanes, &page, StepTable::Done, None).await?);
        if steps.is_empty() {
            return Ok(None);
        }
        steps.sort_by_key(|step| step.id);
        let query = sql!(
            "select ",
            list!(AttemptColumns, Postgres),
            " from holdoff.attempts a left join holdoff.workers w on w.id = a.worker
            where a.task = $1 order by a.started_at, a.step, a.lease"
        );
        let rows = sqlx::query(query).bind(id.as_uuid()).fetch_all(&mut *tx).await?;
        let attempts = AttemptColumns::read(&rows)?.into_iter().map(|row| row.into_record(id)).collect();
        let query = sql!(
            "select ",
            list!(EdgeColumns, Postgres),
            " from holdoff.edges where task = $1 order by parent, child"
        );
        let rows = sqlx::query(query).bind(id.as_uuid()).fetch_all(&mut *tx).await?;
        let edges = EdgeColumns::read(&rows)?.iter().map(|row| (row.parent, row.child)).collect();
        let now = sqlx::query_scalar("select holdoff.micros(clock_timestamp())").fetch_one(&mut *tx).await?;
        let state = TaskState::of(steps.iter().map(|step| step.state));
        Ok(Some(TaskRecord { id, state, now: Moment(now), steps, attempts, edges }))
    }

    async fn scan(&self, filter: &StepFilter, page: &PageRequest) -> Result<StepPage> {
        let mut tx = self.begin_scan().await?;
        let lanes = LaneFilter::of(&mut tx, filter).await?;
        if lanes.is_empty() {
            return Ok(StepPage::default());
        }
        let wanted = PageRequest { limit: page.limit.saturating_add(1), ..page.clone() };
        let mut parts = Vec::new();
        for table in StepTable::of(filter) {
            let mut table_floor = None;
            if filter.skips_rows() {
                table_floor = floor(&mut tx, table, page.after, page.scan_limit).await?;
            }
            let steps = select(&mut tx, filter, &lanes, &wanted, table, table_floor).await?;
            parts.push(TablePage::new(steps, wanted.limit, table_floor, |step| step.id));
        }
        Ok(MergedPage::of(parts, page.limit, |step| step.id).into())
    }

    async fn count_steps(&self, filter: &StepFilter, most: u64) -> Result<StepCount> {
        let mut tx = self.begin_scan().await?;
        let lanes = LaneFilter::of(&mut tx, filter).await?;
        if lanes.is_empty() {
            return Ok(StepCount::Exactly(0));
        }
        let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
        let (mut counted, mut is_all) = (0, true);
        for table in StepTable::of(filter) {
            let mut range = KeyRange::default();
            if filter.skips_rows() {
                range.floor = floor(&mut tx, table, None, PageRequest::MAX_SCANNED).await?;
                is_all &= range.floor.is_none();
            }
            let mut query = QueryBuilder::<Database>::new("select count(*) from (select from ");
            query.push(table_name(table)).push(" s");
            push_where(&mut query, filter, table, &lanes);
            range.push(&mut query);
            query.push(" limit ").push_bind(limit).push(") s");
            counted += columns::count(query.build_query_scalar().fetch_one(&mut *tx).await?);
        }
        Ok(StepCount::new(counted, is_all, most))
    }

    async fn scan_tasks(
        &self,
        filter: &StepFilter,
        before: Option<TaskId>,
        limit: u32,
    ) -> Result<ScannedTasks> {
        let mut tx = self.begin_scan().await?;
        let lanes = LaneFilter::of(&mut tx, filter).await?;
        if lanes.is_empty() {
            return Ok(ScannedTasks::default());
        }
        let wanted = limit.saturating_add(1);
        let mut parts = Vec::new();
        for table in StepTable::of(filter) {
            let mut table_floor = None;
            if filter.skips_rows() {
                // The last task is read with all its steps.
                let below = before.map(|task| task.step(0));
                let last = floor(&mut tx, table, below, PageRequest::MAX_SCANNED).await?;
                table_floor = last.map(|step| step.task);
            }
            let mut query = QueryBuilder::<Database>::new("select distinct s.task from ");
            query.push(table_name(table)).push(" s");
            push_where(&mut query, filter, table, &lanes);
            for (sign, task) in [(" and s.task < ", before), (" and s.task >= ", table_floor)] {
                if let Some(task) = task {
                    query.push(sign).push_bind(task.as_uuid());
                }
            }
            query.push(" order by s.task desc limit ").push_bind(i64::from(wanted));
            let found = query.build_query_scalar::<Uuid>().fetch_all(&mut *tx).await?;
            let found = found.into_iter().map(TaskId::from_uuid).collect();
            parts.push(TablePage::new(found, wanted, table_floor, |task: &TaskId| *task));
        }
        let MergedPage { found, next, .. } = MergedPage::of(parts, limit, |task| *task);
        Ok(ScannedTasks { tasks: summaries(&mut tx, &found).await?, next })
    }

    async fn list_signals(&self, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>> {
        let mut tx = self.pool.begin_with("begin isolation level repeatable read").await?;
        default_planner(&mut tx).await?;
        let query = sql!(
            "select ",
            list!(SignalColumns, Postgres),
            " from holdoff.signals g where $1::text is null or g.namespace = $1
            order by g.last_at desc, g.namespace, g.fingerprint limit $2"
        );
        let rows = sqlx::query(query).bind(namespace).bind(i64::from(limit)).fetch_all(&mut *tx).await?;
        let signals = SignalColumns::read(&rows)?;
        let tasks: Vec<TaskId> = signals.iter().map(|row| TaskId::from_uuid(row.task)).collect();
        Ok(columns::signal_records(signals, summaries(&mut tx, &tasks).await?))
    }

    async fn affected(&self, filter: &StepFilter, action: &Action) -> Result<u64> {
        let mut tx = self.pool.begin_with("begin isolation level repeatable read").await?;
        default_planner(&mut tx).await?;
        let mut query = QueryBuilder::<Database>::new("select count(*) from holdoff.steps");
        if let Action::Cancel = action {
            query.push(" c where c.task in (select s.task from holdoff.steps");
        }
        query.push(" s");
        push_where(&mut query, filter, StepTable::Steps, &LaneFilter::InStatement);
        query.push(" and ").push(permits(action));
        if let Action::Cancel = action {
            query.push(")");
        }
        Ok(columns::count(query.build_query_scalar().fetch_one(&mut *tx).await?))
    }

    async fn act(&self, filter: &StepFilter, action: &Action) -> Result<u64> {
        let mut tx = self.pool.begin().await?;
        let count = match action {
            Action::Retry => revive(&mut tx, filter, action, None).await?,
            Action::Resolve(payload) => revive(&mut tx, filter, action, payload.as_ref()).await?,
            Action::Discard => end(&mut tx, filter, action, StepState::Discarded).await?,
            Action::Cancel => end(&mut tx, filter, action, StepState::Cancelled).await?,
        };
        if count > 0 {
            notify_due(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(count)
    }

    async fn pause(&self, namespace: &str, what: Pausable, name: &str, paused: bool) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("lock table holdoff.paused in share row exclusive mode").execute(&mut *tx).await?;
        let change = if paused {
            "insert into holdoff.paused (namespace, kind, name) values ($1, $2, $3) on conflict do nothing"
        } else {
            "delete from holdoff.paused where namespace = $1 and kind = $2 and name = $3"
        };
        sqlx::query(change).bind(namespace).bind(what.code()).bind(name).execute(&mut *tx).await?;
        let update = sql!(
            "update holdoff.lanes l set paused = exists (
                select from holdoff.paused p where p.namespace = l.namespace and (
                    (p.kind = {paused.queue} and p.name = l.queue)
                    or (p.kind = {paused.operation} and p.name = l.operation)))
            where l.namespace = $1"
        );
        sqlx::query(update).bind(namespace).execute(&mut *tx).await?;
        if !paused {
            notify_due(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn prune(&self, rule: PruneRule) -> Result<Pruned> {
        let mut steps = prune::finished_by_age(&self.pool, rule).await?;
        steps += prune::unfinishable(&self.pool, rule).await?;
        steps += prune::finished_by_number(&self.pool, rule).await?;
        Ok(Pruned { steps, keys: prune::keys_and_signals(&self.pool, rule).await? })
    }

    async fn prune_workers(&self) -> Result<u64> {
        prune::workers(&self.pool).await
    }

    async fn prune_lanes(&self) -> Result<u64> {
        prune::lanes(&self.pool).await
    }

    /// Does nothing: autovacuum reclaims the space.
    async fn compact(&self) -> Result<()> {
        Ok(())
    }
}

impl Postgres {
    /// Begins a read at one snapshot, so that a step that finishes meanwhile is in exactly one of the tables. The
    /// settings make the planner read rows in key order, and plan every statement for its actual parameters.
    async fn begin_scan(&self) -> Result<Transaction> {
        let mut tx = self.pool.begin_with("begin isolation level repeatable read").await?;
        let settings =
            "set local enable_sort = off; set local enable_bitmapscan = off; set local enable_hashagg = off;
            set local plan_cache_mode = force_custom_plan";
        sqlx::raw_sql(settings).execute(&mut *tx).await?;
        Ok(tx)
    }
}

/// Returns the key of the last of `most` rows of a table below a key, or `None` if the table ends before that.
async fn floor(
    tx: &mut Session<'_>,
    table: StepTable,
    below: Option<StepId>,
    most: u32,
) -> Result<Option<StepId>> {
    let mut query = QueryBuilder::<Database>::new("select ");
    query.push(list!(StepKeyColumns, Postgres)).push(" from ").push(table_name(table)).push(" s where true");
    if table == StepTable::Halted {
        query.push(sql!(" and s.index_state = {index.halted}"));
    }
    KeyRange { below, floor: None }.push(&mut query);
    query.push(" order by s.task desc, s.step desc offset ").push_bind(i64::from(most) - 1).push(" limit 1");
    let rows = query.build().fetch_all(tx).await?;
    Ok(StepKeyColumns::read(&rows)?.first().map(StepKeyColumns::id))
}

/// Returns the matching steps of a table, newest first, down to a floor.
async fn select(
    tx: &mut Session<'_>,
    filter: &StepFilter,
    lanes: &LaneFilter,
    page: &PageRequest,
    table: StepTable,
    floor: Option<StepId>,
) -> Result<Vec<StepRecord>> {
    let is_finished = table == StepTable::Done;
    let (columns, content) = if is_finished {
        (list!(StepColumns, PostgresDone), list!(StepPayloadColumns, PostgresDone))
    } else {
        (list!(StepColumns, Postgres), list!(StepPayloadColumns, Postgres))
    };
    let mut query = QueryBuilder::<Database>::new("select ");
    query.push(columns);
    if page.with_payloads {
        query.push(", ").push(content);
    }
    query.push(" from ").push(table_name(table)).push(" s join holdoff.lanes l on l.id = s.lane");
    query.push(" left join holdoff.policies p on p.id = s.policy");
    push_where(&mut query, filter, table, lanes);
    KeyRange { below: page.after, floor }.push(&mut query);
    query.push(" order by s.task desc, s.step desc limit ").push_bind(i64::from(page.limit));
    let rows: Vec<PgRow> = query.build().fetch_all(tx).await?;
    let steps = StepColumns::read(&rows)?.into_iter();
    if !page.with_payloads {
        return Ok(steps.map(|step| step.into_record(is_finished, None)).collect());
    }
    let contents = StepPayloadColumns::read(&rows)?;
    Ok(steps.zip(contents).map(|(step, content)| step.into_record(is_finished, Some(content))).collect())
}

/// Returns summaries of these tasks, computed from their steps, newest first.
async fn summaries(tx: &mut Session<'_>, tasks: &[TaskId]) -> Result<Vec<TaskSummary>> {
    let ids: Vec<Uuid> = tasks.iter().map(TaskId::as_uuid).collect();
    let mut groups = Vec::new();
    for table in [StepTable::Steps, StepTable::Done] {
        let mut query = QueryBuilder::<Database>::new("select ");
        query.push(list!(TaskGroupColumns, Postgres)).push(" from ").push(table_name(table));
        query.push(" s join holdoff.lanes l on l.id = s.lane where s.task = any(").push_bind(ids.clone());
        query.push(") group by s.task, s.state");
        groups.extend(TaskGroupColumns::read(&query.build().fetch_all(&mut *tx).await?)?);
    }
    Ok(columns::task_summaries(groups))
}

/// Makes steps ready again, with their attempts reset.
async fn revive(
    tx: &mut Session<'_>,
    filter: &StepFilter,
    action: &Action,
    payload: Option<&Payload>,
) -> Result<u64> {
    let mut query = QueryBuilder::<Database>::new("with x as (select s.task, s.step from holdoff.steps s");
    push_where(&mut query, filter, StepTable::Steps, &LaneFilter::InStatement);
    query.push(" and ").push(permits(action)).push(sql!(
        " order by s.task, s.step for update)
        update holdoff.steps s set state = {ready}, index_state = {index.claimable}, lease = s.lease + 1, failures = 0,
            rescues = 0, refreshed = false, last_delay_us = 0, first_at = null, ended_at = null,
            expires_at = null, reason = null, due_at = clock_timestamp()"
    ));
    if let Some(payload) = payload {
        query.push(", format = ").push_bind(payload.format.code());
        query.push(", payload = ").push_bind(payload.bytes.to_vec());
    }
    query.push(" from x where s.task = x.task and s.step = x.step");
    Ok(query.build().execute(tx).await?.rows_affected())
}

/// Moves steps into the history, alone or with their whole tasks. A worker that still holds a step is fenced, because
/// the step's row is gone.
async fn end(tx: &mut Session<'_>, filter: &StepFilter, action: &Action, state: StepState) -> Result<u64> {
    let mut query = QueryBuilder::<Database>::new("with x as (select s.task, s.step from holdoff.steps s");
    push_where(&mut query, filter, StepTable::Steps, &LaneFilter::InStatement);
    query
        .push(" and ")
        .push(permits(action))
        .push(" order by s.task, s.step for update), gone as (delete from holdoff.steps s using ");
    query.push(if let Action::Cancel = action {
        "(select distinct task from x) x where s.task = x.task"
    } else {
        "x where s.task = x.task and s.step = x.step"
    });
    query.push(
        " returning s.*)
        insert into holdoff.done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
            ended_at, failures, rescues, snoozes, name, destination, reason, class, message)
        select task, step, lane, policy, ",
    );
    query.push_bind(state.code()).push(sql!(
        ", {format.empty}, worker, lease, created_at, claimed_at, clock_timestamp(), failures, rescues, snoozes, name,
            destination, reason, class, message from gone"
    ));
    Ok(query.build().execute(tx).await?.rows_affected())
}
