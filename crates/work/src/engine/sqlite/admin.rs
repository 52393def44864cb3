//! The queries and actions of operators.

use async_trait::async_trait;
use sqlx::types::Uuid;
use sqlx::{QueryBuilder, Sqlite as Engine, SqliteConnection};

use super::filter::{KeyRange, push_where, push_where_by_key, table_name};
use super::json_rows::step_keys;
use super::{COMPONENT, Sqlite, prune};
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
impl AdminStore for Sqlite {
    async fn migrate(&self) -> Result<()> {
        Ok(self.file.migrate(&COMPONENT).await?)
    }

    async fn task(&self, id: TaskId, with_payloads: bool) -> Result<Option<TaskRecord>> {
        // One snapshot for both tables: a step that finishes meanwhile is in exactly one of them.
        let (mut tx, now) = (self.file.readers().begin().await?, self.file.now());
        let page = PageRequest { limit: u32::MAX, with_payloads, ..PageRequest::default() };
        let filter = StepFilter::task(id);
        let mut steps = select(&mut tx, now, &filter, &page, StepTable::Steps, None).await?;
        steps.extend(select(&mut tx, now, &filter, &page, StepTable::Done, None).await?);
        if steps.is_empty() {
            return Ok(None);
        }
        steps.sort_by_key(|step| step.id);
        let query = sql!(
            "select ",
            list!(AttemptColumns, Sqlite),
            " from holdoff_attempts a left join holdoff_workers w on w.id = a.worker
            where a.task = ?1 order by a.started_at, a.step, a.lease"
        );
        let rows = sqlx::query(query).bind(id.as_uuid()).fetch_all(&mut *tx).await?;
        let attempts = AttemptColumns::read(&rows)?.into_iter().map(|row| row.into_record(id)).collect();
        let query = sql!(
            "select ",
            list!(EdgeColumns, Sqlite),
            " from holdoff_edges where task = ?1 order by parent, child"
        );
        let rows = sqlx::query(query).bind(id.as_uuid()).fetch_all(&mut *tx).await?;
        let edges = EdgeColumns::read(&rows)?.iter().map(|row| (row.parent, row.child)).collect();
        let state = TaskState::of(steps.iter().map(|step| step.state));
        Ok(Some(TaskRecord { id, state, now: Moment(now), steps, attempts, edges }))
    }

    async fn scan(&self, filter: &StepFilter, page: &PageRequest) -> Result<StepPage> {
        // One snapshot for both tables: a step that finishes meanwhile is in exactly one of them.
        let (mut tx, now) = (self.file.readers().begin().await?, self.file.now());
        let wanted = PageRequest { limit: page.limit.saturating_add(1), ..page.clone() };
        let mut parts = Vec::new();
        for table in StepTable::of(filter) {
            let mut table_floor = None;
            if filter.skips_rows() {
                let limit = scan_limit_of(filter, table, page.scan_limit);
                table_floor = floor(&mut tx, table, page.after, limit).await?;
            }
            let steps = select(&mut tx, now, filter, &wanted, table, table_floor).await?;
            parts.push(TablePage::new(steps, wanted.limit, table_floor, |step| step.id));
        }
        Ok(MergedPage::of(parts, page.limit, |step| step.id).into())
    }

    async fn count_steps(&self, filter: &StepFilter, most: u64) -> Result<StepCount> {
        let (mut tx, now) = (self.file.readers().begin().await?, self.file.now());
        let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
        let (mut counted, mut is_all) = (0, true);
        for table in StepTable::of(filter) {
            let mut range = KeyRange::default();
            if filter.skips_rows() {
                let limit = scan_limit_of(filter, table, PageRequest::MAX_SCANNED);
                range.floor = floor(&mut tx, table, None, limit).await?;
                is_all &= range.floor.is_none();
            }
            let mut query = QueryBuilder::<Engine>::new("select count(*) from (select 1 from ");
            query.push(table_name(table)).push(" s");
            push_where_by_key(&mut query, filter, table, now);
            range.push(&mut query);
            query.push(" limit ").push_bind(limit).push(")");
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
        let (mut tx, now) = (self.file.readers().begin().await?, self.file.now());
        let wanted = limit.saturating_add(1);
        let mut parts = Vec::new();
        for table in StepTable::of(filter) {
            let mut table_floor = None;
            if filter.skips_rows() {
                // The last task is read with all its steps.
                let below = before.map(|task| task.step(0));
                let limit = scan_limit_of(filter, table, PageRequest::MAX_SCANNED);
                table_floor = floor(&mut tx, table, below, limit).await?.map(|step| step.task);
            }
            let mut query = QueryBuilder::<Engine>::new("select distinct s.task from ");
            query.push(table_name(table)).push(" s");
            push_where_by_key(&mut query, filter, table, now);
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
        let mut tx = self.file.readers().begin().await?;
        let query = sql!(
            "select ",
            list!(SignalColumns, Sqlite),
            " from holdoff_signals where ?1 is null or namespace = ?1
            order by last_at desc, namespace, fingerprint limit ?2"
        );
        let rows = sqlx::query(query).bind(namespace).bind(i64::from(limit)).fetch_all(&mut *tx).await?;
        let signals = SignalColumns::read(&rows)?;
        let tasks: Vec<TaskId> = signals.iter().map(|row| TaskId::from_uuid(row.task)).collect();
        Ok(columns::signal_records(signals, summaries(&mut tx, &tasks).await?))
    }

    async fn affected(&self, filter: &StepFilter, action: &Action) -> Result<u64> {
        let mut query = QueryBuilder::<Engine>::new("select count(*) from holdoff_steps");
        if let Action::Cancel = action {
            query.push(" c where c.task in (select s.task from holdoff_steps");
        }
        query.push(" s");
        push_where(&mut query, filter, StepTable::Steps, self.file.now());
        query.push(" and ").push(permits(action));
        if let Action::Cancel = action {
            query.push(")");
        }
        Ok(columns::count(query.build_query_scalar().fetch_one(self.file.readers()).await?))
    }

    async fn act(&self, filter: &StepFilter, action: &Action) -> Result<u64> {
        let mut write = self.file.write().await?;
        let (tx, now) = (&mut *write.tx, write.now);
        let count = match action {
            Action::Retry => revive(tx, now, filter, action, None).await?,
            Action::Resolve(payload) => revive(tx, now, filter, action, payload.as_ref()).await?,
            Action::Discard => end(tx, now, filter, action, StepState::Discarded).await?,
            Action::Cancel => end(tx, now, filter, action, StepState::Cancelled).await?,
        };
        write.tx.commit().await?;
        self.wake.send();
        Ok(count)
    }

    async fn pause(&self, namespace: &str, what: Pausable, name: &str, paused: bool) -> Result<()> {
        let mut write = self.file.write().await?;
        let tx: &mut SqliteConnection = &mut write.tx;
        if paused {
            let insert = "insert into holdoff_paused (namespace, kind, name, since) values (?1, ?2, ?3, ?4)
                on conflict do nothing";
            let insert = sqlx::query(insert).bind(namespace).bind(what.code()).bind(name).bind(write.now);
            insert.execute(&mut *tx).await?;
        } else {
            let delete = "delete from holdoff_paused where namespace = ?1 and kind = ?2 and name = ?3";
            sqlx::query(delete).bind(namespace).bind(what.code()).bind(name).execute(&mut *tx).await?;
        }
        let update = sql!(
            "update holdoff_lanes as l set paused = exists (
                select 1 from holdoff_paused p where p.namespace = l.namespace and (
                    (p.kind = {paused.queue} and p.name = l.queue)
                    or (p.kind = {paused.operation} and p.name = l.operation)))
            where l.namespace = ?1"
        );
        sqlx::query(update).bind(namespace).execute(&mut *tx).await?;
        write.tx.commit().await?;
        self.wake.send();
        Ok(())
    }

    async fn prune(&self, rule: PruneRule) -> Result<Pruned> {
        let mut write = self.file.write().await?;
        let steps = prune::steps(&mut write.tx, write.now, rule).await?;
        let keys = prune::keys_and_signals(&mut write.tx, write.now, rule).await?;
        write.tx.commit().await?;
        Ok(Pruned { steps, keys })
    }

    async fn prune_workers(&self) -> Result<u64> {
        if !prune::is_any_worker_old(self.file.readers(), self.file.now()).await? {
            return Ok(0);
        }
        prune::workers(self.file.write().await?).await
    }

    async fn prune_lanes(&self) -> Result<u64> {
        let unused = prune::unused_lanes(self.file.readers()).await?;
        if unused.is_empty() { Ok(0) } else { prune::lanes(self.file.write().await?, &unused).await }
    }

    async fn compact(&self) -> Result<()> {
        prune::free_pages(self.file.writer()).await
    }
}

/// Returns the key of the last of `most` rows of a table below a key, or `None` if the table ends before that.
async fn floor(
    tx: &mut SqliteConnection,
    table: StepTable,
    below: Option<StepId>,
    most: u32,
) -> Result<Option<StepId>> {
    let mut query = QueryBuilder::<Engine>::new("select ");
    query.push(list!(StepKeyColumns, Sqlite)).push(" from ").push(table_name(table)).push(" s where true");
    if table == StepTable::Halted {
        query.push(sql!(" and s.state in ({failed}, {conflicted})"));
    }
    KeyRange { below, floor: None }.push(&mut query);
    query.push(" order by s.task desc, s.step desc limit 1 offset ").push_bind(i64::from(most) - 1);
    let rows = query.build().fetch_all(tx).await?;
    Ok(StepKeyColumns::read(&rows)?.first().map(StepKeyColumns::id))
}

/// Returns the number of rows to scan. Rows that are far apart in the file cost more if the index alone does not decide
/// whether they match, so fewer of them are scanned.
fn scan_limit_of(filter: &StepFilter, table: StepTable, limit: u32) -> u32 {
    match table {
        StepTable::Halted if filter.text.is_some() => limit.div_ceil(4),
        _ => limit,
    }
}

/// Returns the matching steps of a table, newest first, down to a floor.
async fn select(
    tx: &mut SqliteConnection,
    now: i64,
    filter: &StepFilter,
    page: &PageRequest,
    table: StepTable,
    floor: Option<StepId>,
) -> Result<Vec<StepRecord>> {
    let is_finished = table == StepTable::Done;
    let (columns, content) = if is_finished {
        (list!(StepColumns, SqliteDone), list!(StepPayloadColumns, SqliteDone))
    } else {
        (list!(StepColumns, Sqlite), list!(StepPayloadColumns, Sqlite))
    };
    let mut query = QueryBuilder::<Engine>::new("select ");
    query.push(columns);
    if page.with_payloads {
        query.push(", ").push(content);
    }
    // The subquery selects the keys in order, from an index alone where possible, so that the page limit ends the
    // search. The join then reads the other columns. `cross` keeps the tables in this order.
    query.push(" from (select s.task, s.step from ").push(table_name(table)).push(" s");
    push_where_by_key(&mut query, filter, table, now);
    KeyRange { below: page.after, floor }.push(&mut query);
    query.push(" order by s.task desc, s.step desc limit ").push_bind(i64::from(page.limit));
    query.push(") k cross join ").push(table_name(table)).push(" s on s.task = k.task and s.step = k.step");
    query
        .push(" cross join holdoff_lanes l on l.id = s.lane left join holdoff_policies p on p.id = s.policy");
    query.push(" order by s.task desc, s.step desc");
    let rows = query.build().fetch_all(tx).await?;
    let steps = StepColumns::read(&rows)?.into_iter();
    if !page.with_payloads {
        return Ok(steps.map(|step| step.into_record(is_finished, None)).collect());
    }
    let contents = StepPayloadColumns::read(&rows)?;
    Ok(steps.zip(contents).map(|(step, content)| step.into_record(is_finished, Some(content))).collect())
}

/// Returns summaries of these tasks, computed from their steps, newest first.
async fn summaries(tx: &mut SqliteConnection, tasks: &[TaskId]) -> Result<Vec<TaskSummary>> {
    let first_steps: Vec<StepId> = tasks.iter().map(|task| task.step(0)).collect();
    let wanted = step_keys(&first_steps);
    let mut groups = Vec::new();
    for table in [StepTable::Steps, StepTable::Done] {
        let mut query = QueryBuilder::<Engine>::new("select ");
        query.push(list!(TaskGroupColumns, Sqlite));
        query.push(" from (select unhex(value ->> 0) as task from json_each(").push_bind(wanted.clone());
        query.push(")) x cross join ").push(table_name(table));
        query.push(" s on s.task = x.task join holdoff_lanes l on l.id = s.lane group by s.task, s.state");
        groups.extend(TaskGroupColumns::read(&query.build().fetch_all(&mut *tx).await?)?);
    }
    Ok(columns::task_summaries(groups))
}

/// Makes steps ready again, with their attempts reset.
async fn revive(
    tx: &mut SqliteConnection,
    now: i64,
    filter: &StepFilter,
    action: &Action,
    payload: Option<&Payload>,
) -> Result<u64> {
    let mut query = QueryBuilder::<Engine>::new(sql!(
        "update holdoff_steps set state = {ready}, lease = lease + 1, failures = 0, rescues = 0, refreshed = 0,
            last_delay_us = 0, first_at = null, ended_at = null, expires_at = null, reason = null, due_at = "
    ));
    query.push_bind(now);
    if let Some(payload) = payload {
        query.push(", format = ").push_bind(payload.format.code());
        query.push(", payload = ").push_bind(payload.bytes.to_vec());
    }
    query.push(" where (task, step) in (select s.task, s.step from holdoff_steps s");
    push_where(&mut query, filter, StepTable::Steps, now);
    query.push(" and ").push(permits(action)).push(")");
    Ok(query.build().execute(tx).await?.rows_affected())
}

/// Moves steps into the history, alone or with their whole tasks. A worker that still holds a step is fenced, because
/// the step's row is gone.
async fn end(
    tx: &mut SqliteConnection,
    now: i64,
    filter: &StepFilter,
    action: &Action,
    state: StepState,
) -> Result<u64> {
    sqlx::query("create temp table if not exists holdoff_ending (task blob, step integer)")
        .execute(&mut *tx)
        .await?;
    sqlx::query("delete from temp.holdoff_ending").execute(&mut *tx).await?;
    let mut query = QueryBuilder::<Engine>::new(
        "insert into temp.holdoff_ending select s.task, s.step from holdoff_steps s",
    );
    if let Action::Cancel = action {
        query.push(" where s.task in (select s.task from holdoff_steps s");
    }
    push_where(&mut query, filter, StepTable::Steps, now);
    query.push(" and ").push(permits(action));
    if let Action::Cancel = action {
        query.push(")");
    }
    query.build().execute(&mut *tx).await?;
    let keep = sql!(
        "insert into holdoff_done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
            ended_at, failures, rescues, snoozes, name, destination, reason, class, message)
        select s.task, s.step, s.lane, s.policy, ?1, {format.empty}, s.worker, s.lease, s.created_at, s.claimed_at, ?2,
            s.failures, s.rescues, s.snoozes, s.name, s.destination, s.reason, s.class, s.message
        from temp.holdoff_ending x cross join holdoff_steps s on s.task = x.task and s.step = x.step"
    );
    sqlx::query(keep).bind(state.code()).bind(now).execute(&mut *tx).await?;
    let delete =
        "delete from holdoff_steps where (task, step) in (select task, step from temp.holdoff_ending)";
    Ok(sqlx::query(delete).execute(tx).await?.rows_affected())
}
