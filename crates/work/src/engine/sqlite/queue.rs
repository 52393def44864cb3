//! Claims, leases and reports, and the registration of lanes and workers.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use holdoff_policy::as_micros_i64;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, SqliteConnection};
use tokio::sync::watch;

use super::finish::{change, receipts, succeed, unblock};
use super::json_rows::{JsonRows, step_keys};
use super::{Sqlite, submit};
use crate::engine::columns::{
    ChangedColumns, ClaimColumns, ClaimPayloadColumns, HeldColumns, InputColumns, InputSizeColumns,
    LaneColumns, StepKeyColumns, duration, list,
};
use crate::engine::exits::{self, EXPIRED, LOST_TOO_OFTEN};
use crate::engine::sql::sql;
use crate::store::{
    ClaimRow, Finished, LaneId, LaneLimits, NewTask, NotifyFn, QueueStore, Report, RescueRule, Rescued,
    Result, Selection, SignalKey, Submitted, WorkerId,
};
use crate::{Lane, Payload, Signalled, StepId, TaskId, next_due};

/// Finds the lane of the most urgent due step with one index lookup at each lane's head.
pub(super) const HEAD: &str = sql!(
    "select l.id from (
        select l.id, l.priority, (
            select s.due_at from holdoff_steps s where s.lane = l.id and s.state = {ready} and s.due_at <= ?5
                and (s.expires_at is null or s.expires_at > ?5)
            order by s.due_at limit 1
        ) as due_at
        from holdoff_lanes l
        where not l.paused
            and (?1 = '[]' or l.namespace in (select value from json_each(?1)))
            and (?2 = '[]' or l.queue in (select value from json_each(?2)))
            and ((l.kind = {kind.handler} and l.operation in (select value from json_each(?3)))
                or (l.kind = {kind.http} and ?4))
    ) l
    where l.due_at is not null order by l.priority, l.due_at limit 1"
);

pub(super) const CLAIM: &str = sql!(
    "update holdoff_steps as s set state = {running}, lease = s.lease + 1, worker = ?2, claimed_at = ?3,
        first_at = iif(s.failures = 0, ?3, coalesce(s.first_at, ?3)), due_at = ?3 + ?4
    where (s.task, s.step) in (
        select c.task, c.step from holdoff_steps c where c.lane = ?1 and c.state = {ready} and c.due_at <= ?3
            and (c.expires_at is null or c.expires_at > ?3)
        order by c.due_at limit ?5
    )
    returning ",
    list!(ClaimColumns, Sqlite),
    ", ",
    list!(ClaimPayloadColumns, Sqlite)
);

/// The steps whose leases have expired.
pub(super) const LOST: &str = sql!(
    "select s.task, s.step from holdoff_lanes l
    cross join holdoff_steps s on s.lane = l.id and s.state = {running} and s.due_at < ?1"
);

/// The steps whose start-by time has passed.
pub(super) const EXPIRED_STEPS: &str = sql!(
    "select s.task, s.step from holdoff_steps s where s.state = {ready} and s.expires_at <= ?1
    order by s.expires_at"
);

/// The finished parents of steps.
const INPUTS: &str = " from json_each(?1) x
    cross join holdoff_edges e on e.task = unhex(x.value ->> 0) and e.child = x.value ->> 1
    cross join holdoff_done d on d.task = e.task and d.step = e.parent";

/// Whether the task of the signal suppresses signals; a failed task does if it ended after `?3`. Blocked steps need no
/// condition of their own, because the step that blocks them is found.
const IS_LIVE: &str = "g.namespace = ?1 and g.fingerprint = ?2 and exists (
    select 1 from holdoff_steps s where s.task = g.task
    and (s.state in ({ready}, {running}, {conflicted}) or (s.state = {failed} and s.ended_at > ?3)))";

#[async_trait]
impl QueueStore for Sqlite {
    async fn lane_ids(&self, lanes: &[Lane], limits: LaneLimits) -> Result<Vec<LaneId>> {
        let mut write = self.file.write().await?;
        let ids = lane_ids(&mut write.tx, lanes, limits).await?;
        write.tx.commit().await?;
        Ok(ids)
    }

    async fn all_lanes(&self) -> Result<Vec<(LaneId, Lane)>> {
        let query = sql!("select ", list!(LaneColumns, Sqlite), " from holdoff_lanes");
        let rows = sqlx::query(query).fetch_all(self.file.readers()).await?;
        Ok(LaneColumns::read(&rows)?.into_iter().map(LaneColumns::into_lane).collect())
    }

    /// A name has one row.
    async fn register_worker(&self, name: &str) -> Result<WorkerId> {
        let mut write = self.file.write().await?;
        let update = "update holdoff_workers set seen_at = ?2
            where id = (select max(id) from holdoff_workers where name = ?1) returning id";
        let insert =
            "insert into holdoff_workers (name, started_at, seen_at) values (?1, ?2, ?2) returning id";
        let known = sqlx::query_scalar(update).bind(name).bind(write.now).fetch_optional(&mut *write.tx);
        let id = match known.await? {
            Some(id) => id,
            None => sqlx::query_scalar(insert).bind(name).bind(write.now).fetch_one(&mut *write.tx).await?,
        };
        write.tx.commit().await?;
        Ok(id)
    }

    async fn touch_worker(&self, worker: WorkerId, name: &str) -> Result<()> {
        let mut write = self.file.write().await?;
        let upsert = "insert into holdoff_workers (id, name, started_at, seen_at) values (?1, ?2, ?3, ?3)
            on conflict (id) do update set seen_at = excluded.seen_at";
        sqlx::query(upsert).bind(worker).bind(name).bind(write.now).execute(&mut *write.tx).await?;
        write.tx.commit().await?;
        Ok(())
    }

    async fn submit(&self, tasks: &[NewTask], again: bool) -> Result<Vec<Submitted>> {
        let mut write = self.file.write().await?;
        let submitted = submit(&mut write.tx, write.now, tasks, again).await?;
        write.tx.commit().await?;
        self.wake.send();
        Ok(submitted)
    }

    async fn signal(&self, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled> {
        let mut write = self.file.write().await?;
        let (tx, now) = (&mut *write.tx, write.now);
        let take =
            "insert into holdoff_signals (namespace, fingerprint, task, occurrences, first_at, last_at)
            values (?1, ?2, ?3, 1, ?4, ?4)
            on conflict (namespace, fingerprint) do update set task = excluded.task, occurrences = 1,
                first_at = excluded.first_at, last_at = excluded.last_at";
        let signalled = if let Some(counted) = count_signal(tx, now, key, Some(task.id)).await? {
            counted
        } else {
            sqlx::query(take)
                .bind(key.namespace)
                .bind(&key.fingerprint.as_bytes()[..])
                .bind(task.id.as_uuid())
                .bind(now)
                .execute(&mut *tx)
                .await?;
            submit(tx, now, std::slice::from_ref(task), true).await?;
            Signalled::Created(task.id)
        };
        write.tx.commit().await?;
        self.wake.send();
        Ok(signalled)
    }

    async fn signal_again(&self, key: &SignalKey<'_>) -> Result<Option<Signalled>> {
        if self.signal_task(key).await?.is_none() {
            return Ok(None);
        }
        let mut write = self.file.write().await?;
        let counted = count_signal(&mut write.tx, write.now, key, None).await?;
        write.tx.commit().await?;
        Ok(counted)
    }

    /// Waiting callers poll this often, and reading blocks no writer.
    async fn signal_task(&self, key: &SignalKey<'_>) -> Result<Option<TaskId>> {
        let query = sql!("select g.task from holdoff_signals g where ", IS_LIVE);
        let task: Option<Uuid> = sqlx::query_scalar(query)
            .bind(key.namespace)
            .bind(&key.fingerprint.as_bytes()[..])
            .bind(self.file.now().saturating_sub(as_micros_i64(key.failed_for)))
            .fetch_optional(self.file.readers())
            .await?;
        Ok(task.map(TaskId::from_uuid))
    }

    async fn claim(
        &self,
        selection: &Selection,
        worker: WorkerId,
        limit: i64,
        lease: Duration,
    ) -> Result<Vec<ClaimRow>> {
        // Reading does not block. The call waits for the write lock only if a step is due.
        if head(self.file.readers(), selection, self.file.now()).await?.is_none() {
            return Ok(Vec::new());
        }
        let mut write = self.file.write().await?;
        let Some(lane) = head(&mut *write.tx, selection, write.now).await? else { return Ok(Vec::new()) };
        let rows = sqlx::query(CLAIM)
            .bind(lane)
            .bind(worker)
            .bind(write.now)
            .bind(as_micros_i64(lease))
            .bind(limit)
            .fetch_all(&mut *write.tx)
            .await?;
        write.tx.commit().await?;
        let steps = ClaimColumns::read(&rows)?.into_iter();
        Ok(steps
            .zip(ClaimPayloadColumns::read(&rows)?)
            .map(|(step, content)| step.with_payload(content))
            .collect())
    }

    async fn input_sizes(&self, steps: &[StepId]) -> Result<Vec<(StepId, u64)>> {
        let query = sql!("select ", list!(InputSizeColumns, Sqlite), INPUTS, " group by e.task, e.child");
        let rows = sqlx::query(query).bind(step_keys(steps)).fetch_all(self.file.readers()).await?;
        Ok(InputSizeColumns::read(&rows)?.into_iter().map(InputSizeColumns::into_size).collect())
    }

    async fn inputs(&self, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>> {
        let query = sql!("select ", list!(InputColumns, Sqlite), INPUTS);
        let rows = sqlx::query(query).bind(step_keys(steps)).fetch_all(self.file.readers()).await?;
        Ok(InputColumns::read(&rows)?.into_iter().map(InputColumns::into_input).collect())
    }

    async fn renew(&self, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>> {
        let mut write = self.file.write().await?;
        let mut keys = JsonRows::new();
        for (step, lease) in held {
            keys.step(*step).number(*lease);
        }
        let update = sql!(
            "update holdoff_steps as s set due_at = ?2
            from (select unhex(value ->> 0) as task, value ->> 1 as step, value ->> 2 as lease from json_each(?1)) x
            where s.task = x.task and s.step = x.step and s.lease = x.lease and s.state = {running}
            returning ",
            list!(StepKeyColumns, Sqlite)
        );
        let until = write.now.saturating_add(as_micros_i64(lease));
        let rows = sqlx::query(update).bind(keys.finish()).bind(until).fetch_all(&mut *write.tx).await?;
        write.tx.commit().await?;
        let renewed: HashSet<StepId> = StepKeyColumns::read(&rows)?.iter().map(StepKeyColumns::id).collect();
        Ok(held.iter().map(|(step, _)| renewed.contains(step)).collect())
    }

    async fn held_step(&self, step: StepId, lease: i64) -> Result<Option<(ClaimRow, Duration)>> {
        let query = sql!(
            "select ",
            list!(ClaimColumns, Sqlite),
            ", ",
            list!(HeldColumns, Sqlite),
            " from holdoff_steps where task = ?1 and step = ?2 and lease = ?3 and state = {running}"
        );
        let query = sqlx::query(query).bind(step.task.as_uuid()).bind(step.number).bind(lease);
        let rows = query.bind(self.file.now()).fetch_all(self.file.readers()).await?;
        let steps = ClaimColumns::read(&rows)?.into_iter().zip(HeldColumns::read(&rows)?);
        Ok(steps.map(|(step, held)| (step.without_payload(), duration(held.held_us))).next())
    }

    async fn finish(&self, reports: &[Report], notify: NotifyFn<'_>) -> Result<Finished> {
        let mut write = self.file.write().await?;
        let (successes, changes) = exits::sort(reports);
        let (tx, now) = (&mut *write.tx, write.now);
        let mut accepted = succeed(tx, now, &successes).await?;
        let is_parent = |report: &&Report| report.has_children && accepted.contains(&report.step);
        let parents: Vec<StepId> =
            successes.iter().map(|(report, _)| *report).filter(is_parent).map(|report| report.step).collect();
        let delays = unblock(tx, now, &parents).await?;
        accepted.extend(change(tx, now, &changes, notify).await?);
        let receipts = receipts(tx, reports, &exits::accepted(reports, &accepted)).await?;
        write.tx.commit().await?;
        if !parents.is_empty() || !changes.is_empty() {
            self.wake.send();
        }
        Ok(Finished { receipts, delays })
    }

    /// The wait is computed by the step's own policy, as after that many failures, and is at least the configured
    /// minimum. The statement draws the random numbers, so that the steps of one dead worker return spread out. It
    /// counts rescues, not failures.
    async fn rescue(&self, rule: RescueRule, notify: NotifyFn<'_>) -> Result<Rescued> {
        let is_any_lost = sqlx::query(sql!(LOST, " limit 1")).bind(self.file.now());
        if is_any_lost.fetch_optional(self.file.readers()).await?.is_none() {
            return Ok(Rescued::default());
        }
        let mut write = self.file.write().await?;
        let rows = sqlx::query(AssertSqlSafe(rescue_statement()))
            .bind(write.now)
            .bind(i64::from(rule.max_rescues))
            .bind(LOST_TOO_OFTEN)
            .bind(rule.limit)
            .bind(as_micros_i64(rule.least_delay))
            .fetch_all(&mut *write.tx)
            .await?;
        let back = ChangedColumns::read(&rows)?;
        let log = sql!(
            "insert into holdoff_attempts (task, step, lease, attempt, outcome, worker, started_at, took_us, delay_us,
                class, message, reason)
            select s.task, s.step, s.lease - 1, s.failures, {outcome.rescued}, s.worker, s.claimed_at,
                ?1 - s.claimed_at, iif(s.state = {failed}, null, s.due_at - ?1), 'timeout',
                iif(s.state = {failed}, ?2, 'its worker was lost'), s.reason
            from json_each(?3) x
            cross join holdoff_steps s on s.task = unhex(x.value ->> 0) and s.step = x.value ->> 1
            where true
            on conflict do nothing"
        );
        let steps: Vec<StepId> = back.iter().map(ChangedColumns::id).collect();
        sqlx::query(log)
            .bind(write.now)
            .bind(LOST_TOO_OFTEN)
            .bind(step_keys(&steps))
            .execute(&mut *write.tx)
            .await?;
        let (notifications, rescued) = exits::rescued(&back, LOST_TOO_OFTEN, notify);
        submit(&mut write.tx, write.now, &notifications, false).await?;
        write.tx.commit().await?;
        Ok(rescued)
    }

    async fn expire(&self, limit: i64, notify: NotifyFn<'_>) -> Result<Rescued> {
        let is_any = sqlx::query(sql!(EXPIRED_STEPS, " limit 1")).bind(self.file.now());
        if is_any.fetch_optional(self.file.readers()).await?.is_none() {
            return Ok(Rescued::default());
        }
        let mut write = self.file.write().await?;
        let update = sql!(
            "update holdoff_steps set state = {failed}, lease = lease + 1, ended_at = ?1, class = 'timeout', message = ?2,
                reason = {reason.expired}
            where (task, step) in (",
            EXPIRED_STEPS,
            " limit ?3) returning ",
            list!(ChangedColumns, Sqlite)
        );
        let query = sqlx::query(update).bind(write.now).bind(EXPIRED).bind(limit);
        let rows = query.fetch_all(&mut *write.tx).await?;
        let (notifications, expired) = exits::rescued(&ChangedColumns::read(&rows)?, EXPIRED, notify);
        submit(&mut write.tx, write.now, &notifications, false).await?;
        write.tx.commit().await?;
        Ok(expired)
    }

    fn wakes(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    fn wake(&self) {
        self.wake.send();
    }
}

/// Returns the number of the lane with the most urgent due step.
async fn head<'c>(
    connection: impl sqlx::SqliteExecutor<'c>,
    selection: &Selection,
    now: i64,
) -> Result<Option<LaneId>> {
    let list = |names: &[String]| serde_json::to_string(names).unwrap_or_else(|_| String::from("[]"));
    let head = sqlx::query_scalar(HEAD)
        .bind(list(&selection.namespaces))
        .bind(list(&selection.queues))
        .bind(list(&selection.operations))
        .bind(selection.http)
        .bind(now);
    Ok(head.fetch_optional(connection).await?)
}

fn rescue_statement() -> String {
    let policy = "(select p.compiled from holdoff_policies p where p.id = s.policy)";
    let delay =
        |attempt| next_due::sqlite(policy, attempt, "s.last_delay_us", "(random() & 4294967295)", "?5");
    let (update, key) = (
        sql!(
            "update holdoff_steps as s set
                state = iif(s.rescues >= ?2, {failed}, {ready}),
                lease = s.lease + 1,
                rescues = s.rescues + 1,
                ended_at = iif(s.rescues >= ?2, ?1, null),
                reason = iif(s.rescues >= ?2, {reason.rescues}, null),
                class = iif(s.rescues >= ?2, 'timeout', s.class),
                message = iif(s.rescues >= ?2, ?3, s.message),
                due_at = ?1 + coalesce("
        ),
        sql!("where (s.task, s.step) in (", LOST, " limit ?4) returning ", list!(ChangedColumns, Sqlite)),
    );
    let (by_rescues, by_first) = (delay("s.rescues + 1"), delay("1"));
    format!("{update}{by_rescues}, {by_first}, ?5 + (random() & 65535) * ?5 / 65536) {key}")
}

/// Returns the numbers of these lanes, and creates new ones within the limits, as part of the caller's transaction.
pub(crate) async fn lane_ids(
    tx: &mut SqliteConnection,
    lanes: &[Lane],
    limits: LaneLimits,
) -> Result<Vec<LaneId>> {
    let mut ids = Vec::with_capacity(lanes.len());
    for lane in lanes {
        ids.push(match find_lane(tx, lane).await? {
            Some(id) => id,
            None => create_lane(tx, lane, limits).await?,
        });
    }
    Ok(ids)
}

async fn find_lane(tx: &mut SqliteConnection, lane: &Lane) -> Result<Option<LaneId>> {
    let query = "select id from holdoff_lanes
        where namespace = ?1 and queue = ?2 and operation = ?3 and kind = ?4 and priority = ?5 and retired_at is null";
    let found = sqlx::query_scalar(query)
        .bind(&lane.namespace)
        .bind(&lane.queue)
        .bind(&lane.operation)
        .bind(lane.kind.code())
        .bind(lane.priority);
    Ok(found.fetch_optional(tx).await?)
}

/// Creates a lane, or takes a retired one into use again.
async fn create_lane(tx: &mut SqliteConnection, lane: &Lane, limits: LaneLimits) -> Result<LaneId> {
    let count =
        "select count(*), count(*) filter (where namespace = ?1) from holdoff_lanes where retired_at is null";
    let (in_all, in_namespace) = sqlx::query_as(count).bind(&lane.namespace).fetch_one(&mut *tx).await?;
    limits.check(lane, in_all, in_namespace)?;
    let insert = sql!(
        "insert into holdoff_lanes (namespace, queue, operation, kind, priority, paused)
        values (?1, ?2, ?3, ?4, ?5, exists (
            select 1 from holdoff_paused p where p.namespace = ?1 and (
                (p.kind = {paused.queue} and p.name = ?2) or (p.kind = {paused.operation} and p.name = ?3))))
        on conflict (namespace, queue, operation, kind, priority) do update set retired_at = null
        returning id"
    );
    let id = sqlx::query_scalar(insert)
        .bind(&lane.namespace)
        .bind(&lane.queue)
        .bind(&lane.operation)
        .bind(lane.kind.code())
        .bind(lane.priority);
    Ok(id.fetch_one(tx).await?)
}

/// Counts an occurrence of a signal whose task is live. If the caller that created the task repeats its call because
/// the response was lost, the statement does not count it again.
async fn count_signal(
    tx: &mut SqliteConnection,
    now: i64,
    key: &SignalKey<'_>,
    mine: Option<TaskId>,
) -> Result<Option<Signalled>> {
    let count = sql!(
        "update holdoff_signals as g set occurrences = g.occurrences + (g.task is not ?5), last_at = ?4 where ",
        IS_LIVE,
        " returning task, occurrences"
    );
    let counted: Option<(Uuid, i64)> = sqlx::query_as(count)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(now.saturating_sub(as_micros_i64(key.failed_for)))
        .bind(now)
        .bind(mine.map(|task| task.as_uuid()))
        .fetch_optional(tx)
        .await?;
    Ok(counted.map(|(task, occurrences)| Signalled::of_holder(TaskId::from_uuid(task), occurrences, mine)))
}
