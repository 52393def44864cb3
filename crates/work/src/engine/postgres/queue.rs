//! Claims, leases and reports, and the registration of lanes and workers.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use holdoff_policy::as_micros_i64;
use holdoff_sql::postgres::Session;
use sqlx::PgExecutor;
use sqlx::types::Uuid;
use tokio::sync::watch;

use super::finish::{change, lock, receipts, succeed, succeed_in_place, succeed_remaining, unblock};
use super::{Postgres, key_arrays, submit};
use crate::engine::columns::{
    ChangedColumns, ClaimColumns, ClaimPayloadColumns, HeldColumns, InputColumns, InputSizeColumns,
    LaneColumns, StepKeyColumns, duration, list,
};
use crate::engine::exits::{self, EXPIRED, LOST_TOO_OFTEN};
use crate::engine::sql::sql;
use crate::store::{
    ClaimRow, Finished, LaneId, LaneLimits, NewTask, NotifyFn, QueueStore, Receipt, Report, RescueRule,
    Rescued, Result, Selection, SignalKey, Submitted, WorkerId,
};
use crate::{Lane, Payload, Signalled, StepId, TaskId};

/// The claim. It finds the lane of the most urgent due step with one index lookup at each lane's head. It then locks
/// steps of that lane, oldest first, and skips those that are claimed or locked. `(select clock_timestamp())` is
/// evaluated once, so that the index scan has an upper bound.
///
/// A claimed step keeps its position in the index, and the claim changes no indexed column: the new version of the row
/// stays on its page and needs no index entries, which nearly doubles the rate. Only steps that are being processed
/// precede the first free step of a lane, so skipping them is cheap. A step whose lease is renewed leaves this part of
/// the index.
macro_rules! claim {
    ($head:literal) => {
        sql!("with head as (
        select l.id from holdoff.lanes l cross join lateral (
            select s.due_at from holdoff.steps s
            where s.lane = l.id and s.index_state = {index.claimable} and s.state = {ready}
                and s.due_at <= (select clock_timestamp())
                and (s.expires_at is null or s.expires_at > (select clock_timestamp()))
            order by s.due_at limit 1", $head, "
        ) h
        where not l.paused
            and (cardinality($1::text[]) = 0 or l.namespace = any($1))
            and (cardinality($2::text[]) = 0 or l.queue = any($2))
            and ((l.kind = {kind.handler} and l.operation = any($3::text[])) or (l.kind = {kind.http} and $4))
        order by l.priority, h.due_at limit 1
    )
    update holdoff.steps s set state = {running}, lease = s.lease + 1, worker = $5, claimed_at = clock_timestamp(),
        first_at = case when s.failures = 0 or s.first_at is null then clock_timestamp() else s.first_at end,
        leased_until = clock_timestamp() + holdoff.span($7)
    where s.ctid = any(array(
        select c.ctid from holdoff.steps c
        where c.lane = (select id from head) and c.index_state = {index.claimable} and c.state = {ready}
            and c.due_at <= (select clock_timestamp())
            and (c.expires_at is null or c.expires_at > (select clock_timestamp()))
        order by c.due_at limit $6 for update skip locked
    ))
    returning ", list!(ClaimColumns, Postgres), ", ", list!(ClaimPayloadColumns, Postgres))
    };
}

const CLAIM: &str = claim!("");

/// The same claim, which also skips lanes whose due steps are all locked. A transaction that keeps a step locked, for
/// however long, does not block claims in other lanes. This statement locks every lane's head, so it runs second.
const CLAIM_BEYOND_LOCKS: &str = claim!(" for update skip locked");

/// The rescue. It finds expired leases in two ranges of the index: among renewed leases by their end, and among steps
/// claimed but never renewed near the head of each lane, because claimed steps precede all others there.
///
/// The wait is computed by the step's own policy, as after that many failures, and is at least the configured minimum.
/// The database draws the random numbers, so that thousands of steps of one dead worker return spread out. The
/// statement counts rescues, not failures. It skips steps that another transaction is renewing, finishing or rescuing,
/// because waiting for them could deadlock.
const RESCUE: &str = sql!(
    "with found as (
        select x.task, x.step from holdoff.lanes l cross join lateral (
            (
                select s.task, s.step from holdoff.steps s
                where s.lane = l.id and s.index_state = {index.renewed} and s.due_at < (select clock_timestamp())
                order by s.due_at limit $3
            ) union all (
                select h.task, h.step from (
                    select s.task, s.step, s.state, s.leased_until from holdoff.steps s
                    where s.lane = l.id and s.index_state = {index.claimable} and s.due_at < (select clock_timestamp())
                    order by s.due_at limit 10000
                ) h
                where h.state = {running} and h.leased_until < (select clock_timestamp()) limit $3
            )
        ) x limit $3
    ), lost as (
        select s.task, s.step from found x join holdoff.steps s on s.task = x.task and s.step = x.step
        where s.state = {running} and s.leased_until < clock_timestamp()
        for update of s skip locked
    ), back as (
        update holdoff.steps s set
            state = case when s.rescues >= $1 then {failed} else {ready} end,
            index_state = case when s.rescues >= $1 then {index.halted} else {index.claimable} end,
            leased_until = null,
            lease = s.lease + 1,
            rescues = s.rescues + 1,
            ended_at = case when s.rescues >= $1 then clock_timestamp() end,
            reason = case when s.rescues >= $1 then {reason.rescues} end,
            class = case when s.rescues >= $1 then 'timeout' else s.class end,
            message = case when s.rescues >= $1 then $4 else s.message end,
            due_at = clock_timestamp() + holdoff.span(coalesce(
                holdoff.next_due(s.policy, s.rescues + 1, s.last_delay_us, floor(random() * 4294967296)::bigint, $2),
                holdoff.next_due(s.policy, 1, s.last_delay_us, floor(random() * 4294967296)::bigint, $2),
                $2 + floor(random() * $2)::bigint))
        from lost
        where s.task = lost.task and s.step = lost.step and s.state = {running} and s.leased_until < clock_timestamp()
        returning s.task, s.step, s.lease - 1 as lease, s.failures, s.worker, s.claimed_at, s.state, s.lane, s.due_at,
            s.reason, s.trace
    ), logged as (
        insert into holdoff.attempts (task, step, lease, attempt, outcome, worker, started_at, took_us, delay_us,
            class, message, reason)
        select task, step, lease, failures, {outcome.rescued}, worker, claimed_at,
            holdoff.micros(clock_timestamp()) - holdoff.micros(claimed_at),
            case when state = {ready} then greatest(0, holdoff.micros(due_at) - holdoff.micros(clock_timestamp())) end,
            'timeout', case when state = {failed} then $4 else 'its worker was lost' end, reason
        from back
    )
    select ",
    list!(ChangedColumns, Postgres),
    " from back"
);

/// The expiry. It skips steps that another transaction is changing.
const EXPIRE: &str = sql!(
    "with found as (
        select s.task, s.step from holdoff.steps s
        where s.index_state = {index.claimable} and s.expires_at <= (select clock_timestamp()) and s.state = {ready}
        order by s.expires_at limit $1 for update skip locked
    )
    update holdoff.steps s set state = {failed}, index_state = {index.halted}, lease = s.lease + 1,
        ended_at = clock_timestamp(), class = 'timeout', message = $2, reason = {reason.expired}
    from found where s.task = found.task and s.step = found.step
    returning s.task, s.step, s.lane, s.state, s.failures, s.trace"
);

/// The finished parents of steps.
const INPUTS: &str = " from unnest($1::uuid[], $2::int[]) as x(task, step)
    join holdoff.edges e on e.task = x.task and e.child = x.step
    join holdoff.done d on d.task = e.task and d.step = e.parent";

/// Whether the task of signal `g` suppresses signals; `$3` is how long a failed task does. Blocked steps need no
/// condition of their own, because the step that blocks them is found.
const IS_LIVE: &str = "exists (select from holdoff.steps s where s.task = g.task
    and (s.state in ({ready}, {running}, {conflicted})
        or (s.state = {failed} and s.ended_at > clock_timestamp() - holdoff.span($3))))";

#[async_trait]
impl QueueStore for Postgres {
    async fn lane_ids(&self, lanes: &[Lane], limits: LaneLimits) -> Result<Vec<LaneId>> {
        let mut ids = Vec::with_capacity(lanes.len());
        for lane in lanes {
            ids.push(match find_lane(&self.pool, lane).await? {
                Some(id) => id,
                None => self.create_lane(lane, limits).await?,
            });
        }
        Ok(ids)
    }

    async fn all_lanes(&self) -> Result<Vec<(LaneId, Lane)>> {
        let query = sql!("select ", list!(LaneColumns, Postgres), " from holdoff.lanes");
        let rows = sqlx::query(query).fetch_all(&self.pool).await?;
        Ok(LaneColumns::read(&rows)?.into_iter().map(LaneColumns::into_lane).collect())
    }

    /// A name has one row.
    async fn register_worker(&self, name: &str) -> Result<WorkerId> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("lock table holdoff.workers in share row exclusive mode").execute(&mut *tx).await?;
        let update = "update holdoff.workers set seen_at = clock_timestamp()
            where id = (select max(id) from holdoff.workers where name = $1) returning id";
        let insert =
            "insert into holdoff.workers (name, seen_at) values ($1, clock_timestamp()) returning id";
        let id = match sqlx::query_scalar(update).bind(name).fetch_optional(&mut *tx).await? {
            Some(id) => id,
            None => sqlx::query_scalar(insert).bind(name).fetch_one(&mut *tx).await?,
        };
        tx.commit().await?;
        Ok(id)
    }

    async fn touch_worker(&self, worker: WorkerId, name: &str) -> Result<()> {
        let upsert = "insert into holdoff.workers (id, name, seen_at) overriding system value
            values ($1, $2, clock_timestamp()) on conflict (id) do update set seen_at = excluded.seen_at";
        sqlx::query(upsert).bind(worker).bind(name).execute(&self.pool).await?;
        Ok(())
    }

    async fn submit(&self, tasks: &[NewTask], again: bool) -> Result<Vec<Submitted>> {
        let mut tx = self.pool.begin().await?;
        let submitted = submit(&mut tx, tasks, again).await?;
        tx.commit().await?;
        self.announce_due(tasks);
        Ok(submitted)
    }

    async fn signal(&self, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled> {
        let mut tx = self.pool.begin().await?;
        let holder = take_fingerprint(&mut tx, key, task.id).await?;
        if holder.task() == task.id {
            submit(&mut tx, std::slice::from_ref(task), true).await?;
        }
        tx.commit().await?;
        if holder.task() == task.id {
            self.announce_due(std::slice::from_ref(task));
        }
        Ok(holder)
    }

    async fn signal_again(&self, key: &SignalKey<'_>) -> Result<Option<Signalled>> {
        let count = sql!(
            "update holdoff.signals g set occurrences = g.occurrences + 1, last_at = clock_timestamp()
            where g.namespace = $1 and g.fingerprint = $2 and ",
            IS_LIVE,
            " returning g.task, g.occurrences"
        );
        let counted: Option<(Uuid, i64)> = sqlx::query_as(count)
            .bind(key.namespace)
            .bind(&key.fingerprint.as_bytes()[..])
            .bind(as_micros_i64(key.failed_for))
            .fetch_optional(&self.pool)
            .await?;
        Ok(counted
            .map(|(task, occurrences)| Signalled::of_holder(TaskId::from_uuid(task), occurrences, None)))
    }

    async fn signal_task(&self, key: &SignalKey<'_>) -> Result<Option<TaskId>> {
        let query = sql!(
            "select g.task from holdoff.signals g where g.namespace = $1 and g.fingerprint = $2 and ",
            IS_LIVE
        );
        let task: Option<Uuid> = sqlx::query_scalar(query)
            .bind(key.namespace)
            .bind(&key.fingerprint.as_bytes()[..])
            .bind(as_micros_i64(key.failed_for))
            .fetch_optional(&self.pool)
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
        let mut rows = Vec::new();
        for statement in [CLAIM, CLAIM_BEYOND_LOCKS] {
            if rows.is_empty() {
                rows = sqlx::query(statement)
                    .bind(&selection.namespaces)
                    .bind(&selection.queues)
                    .bind(&selection.operations)
                    .bind(selection.http)
                    .bind(worker)
                    .bind(limit)
                    .bind(as_micros_i64(lease))
                    .fetch_all(&self.pool)
                    .await?;
            }
        }
        let steps = ClaimColumns::read(&rows)?.into_iter();
        Ok(steps
            .zip(ClaimPayloadColumns::read(&rows)?)
            .map(|(step, content)| step.with_payload(content))
            .collect())
    }

    async fn input_sizes(&self, steps: &[StepId]) -> Result<Vec<(StepId, u64)>> {
        let (tasks, numbers) = key_arrays(steps);
        let query = sql!("select ", list!(InputSizeColumns, Postgres), INPUTS, " group by e.task, e.child");
        let rows = sqlx::query(query).bind(tasks).bind(numbers).fetch_all(&self.pool).await?;
        Ok(InputSizeColumns::read(&rows)?.into_iter().map(InputSizeColumns::into_size).collect())
    }

    async fn inputs(&self, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>> {
        let (tasks, numbers) = key_arrays(steps);
        let query = sql!("select ", list!(InputColumns, Postgres), INPUTS);
        let rows = sqlx::query(query).bind(tasks).bind(numbers).fetch_all(&self.pool).await?;
        Ok(InputColumns::read(&rows)?.into_iter().map(InputColumns::into_input).collect())
    }

    async fn renew(&self, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>> {
        let steps: Vec<StepId> = held.iter().map(|(step, _)| *step).collect();
        let leases: Vec<i64> = held.iter().map(|(_, lease)| *lease).collect();
        let (tasks, numbers) = key_arrays(&steps);
        let update = sql!(
            "update holdoff.steps s set index_state = {index.renewed}, due_at = clock_timestamp() + holdoff.span($4),
                leased_until = clock_timestamp() + holdoff.span($4)
            from unnest($1::uuid[], $2::int[], $3::bigint[]) as x(task, step, lease)
            where s.task = x.task and s.step = x.step and s.lease = x.lease and s.state = {running}
            returning ",
            list!(StepKeyColumns, Postgres)
        );
        let query = sqlx::query(update).bind(tasks).bind(numbers).bind(leases).bind(as_micros_i64(lease));
        let rows = query.fetch_all(&self.pool).await?;
        let renewed: HashSet<StepId> = StepKeyColumns::read(&rows)?.iter().map(StepKeyColumns::id).collect();
        Ok(steps.iter().map(|step| renewed.contains(step)).collect())
    }

    async fn held_step(&self, step: StepId, lease: i64) -> Result<Option<(ClaimRow, Duration)>> {
        let query = sql!(
            "select ",
            list!(ClaimColumns, Postgres),
            ", ",
            list!(HeldColumns, Postgres),
            " from holdoff.steps s where s.task = $1 and s.step = $2 and s.lease = $3 and s.state = {running}"
        );
        let query = sqlx::query(query).bind(step.task.as_uuid()).bind(step.number).bind(lease);
        let rows = query.fetch_all(&self.pool).await?;
        let steps = ClaimColumns::read(&rows)?.into_iter().zip(HeldColumns::read(&rows)?);
        Ok(steps.map(|(step, held)| (step.without_payload(), duration(held.held_us))).next())
    }

    async fn finish(&self, reports: &[Report], notify: NotifyFn<'_>) -> Result<Finished> {
        let (successes, changes) = exits::sort(reports);
        let parents: Vec<StepId> = successes
            .iter()
            .filter(|(report, _)| report.has_children)
            .map(|(report, _)| report.step)
            .collect();
        let mut delays = BTreeSet::new();
        let accepted = if changes.is_empty() && parents.is_empty() {
            // A single statement is a transaction of its own.
            let mut connection = self.pool.acquire().await?;
            let gone = succeed_in_place(&mut connection, &successes).await?;
            if gone.len() == reports.len() {
                connection.commit().await?;
                return Ok(Finished { receipts: vec![Receipt::Accepted; reports.len()], delays });
            }
            let accepted = succeed_remaining(&mut connection, &successes, gone).await?;
            connection.commit().await?;
            accepted
        } else {
            let mut tx = self.pool.begin().await?;
            if !successes.is_empty() && !changes.is_empty() {
                lock(&mut tx, reports).await?;
            }
            let mut accepted = succeed(&mut tx, &successes).await?;
            let finished: Vec<StepId> = parents.into_iter().filter(|step| accepted.contains(step)).collect();
            delays = unblock(&mut tx, &finished).await?;
            let (changed, notifications) = change(&mut tx, &changes, notify).await?;
            accepted.extend(changed);
            tx.commit().await?;
            if !finished.is_empty() || notifications > 0 {
                self.wake.announce();
            }
            accepted
        };
        if accepted.len() == reports.len() {
            return Ok(Finished { receipts: vec![Receipt::Accepted; reports.len()], delays });
        }
        let receipts = receipts(&self.pool, reports, &exits::accepted(reports, &accepted)).await?;
        Ok(Finished { receipts, delays })
    }

    async fn rescue(&self, rule: RescueRule, notify: NotifyFn<'_>) -> Result<Rescued> {
        let mut tx = self.pool.begin().await?;
        let rows = sqlx::query(RESCUE)
            .bind(i32::try_from(rule.max_rescues).unwrap_or(i32::MAX))
            .bind(as_micros_i64(rule.least_delay))
            .bind(rule.limit)
            .bind(LOST_TOO_OFTEN)
            .fetch_all(&mut *tx)
            .await?;
        let (notifications, rescued) = exits::rescued(&ChangedColumns::read(&rows)?, LOST_TOO_OFTEN, notify);
        submit(&mut tx, &notifications, false).await?;
        tx.commit().await?;
        self.announce_due(&notifications);
        Ok(rescued)
    }

    async fn expire(&self, limit: i64, notify: NotifyFn<'_>) -> Result<Rescued> {
        let mut tx = self.pool.begin().await?;
        let rows = sqlx::query(EXPIRE).bind(limit).bind(EXPIRED).fetch_all(&mut *tx).await?;
        let (notifications, expired) = exits::rescued(&ChangedColumns::read(&rows)?, EXPIRED, notify);
        submit(&mut tx, &notifications, false).await?;
        tx.commit().await?;
        self.announce_due(&notifications);
        Ok(expired)
    }

    fn wake(&self) {
        self.wake.announce();
    }

    fn wakes(&self) -> watch::Receiver<()> {
        self.wake.steps()
    }
}

impl Postgres {
    /// Notifies the workers of tasks with a step that is due at once.
    fn announce_due(&self, tasks: &[NewTask]) {
        let mut steps = tasks.iter().flat_map(|task| &task.steps);
        if steps.any(|step| step.parents == 0 && step.delay.is_zero()) {
            self.wake.announce();
        }
    }

    /// Creates a lane, or takes a retired one into use again. The paused flag is read under the same lock that pausing takes, so that neither misses the
    /// other. Lanes are created one at a time, so that concurrent calls cannot exceed the limits together.
    async fn create_lane(&self, lane: &Lane, limits: LaneLimits) -> Result<LaneId> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("lock table holdoff.paused in share mode").execute(&mut *tx).await?;
        sqlx::query("lock table holdoff.lanes in share row exclusive mode").execute(&mut *tx).await?;
        // Another transaction may have created it while this one waited for the lock.
        if let Some(id) = find_lane(&mut *tx, lane).await? {
            return Ok(id);
        }
        let count = "select count(*), count(*) filter (where namespace = $1) from holdoff.lanes
            where retired_at is null";
        let (in_all, in_namespace) = sqlx::query_as(count).bind(&lane.namespace).fetch_one(&mut *tx).await?;
        limits.check(lane, in_all, in_namespace)?;
        let insert = sql!(
            "insert into holdoff.lanes (namespace, queue, operation, kind, priority, paused)
            values ($1, $2, $3, $4, $5, exists (
                select from holdoff.paused p where p.namespace = $1 and (
                    (p.kind = {paused.queue} and p.name = $2) or (p.kind = {paused.operation} and p.name = $3))))
            on conflict (namespace, queue, operation, kind, priority) do update set retired_at = null
            returning id"
        );
        let id = sqlx::query_scalar(insert)
            .bind(&lane.namespace)
            .bind(&lane.queue)
            .bind(&lane.operation)
            .bind(lane.kind.code())
            .bind(i16::from(lane.priority))
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(id)
    }
}

async fn find_lane(store: impl PgExecutor<'_>, lane: &Lane) -> Result<Option<LaneId>> {
    let query =
        "select id from holdoff.lanes where namespace = $1 and queue = $2 and operation = $3 and kind = $4
        and priority = $5 and retired_at is null";
    let found = sqlx::query_scalar(query)
        .bind(&lane.namespace)
        .bind(&lane.queue)
        .bind(&lane.operation)
        .bind(lane.kind.code())
        .bind(i16::from(lane.priority));
    Ok(found.fetch_optional(store).await?)
}

/// Takes the fingerprint for this task, unless another task holds it. The row is locked first, and a later statement
/// reads its task. If one statement did both, it could see the row of a concurrently created task but not its steps.
async fn take_fingerprint(tx: &mut Session<'_>, key: &SignalKey<'_>, task: TaskId) -> Result<Signalled> {
    let lock = "insert into holdoff.signals as g (namespace, fingerprint, task, occurrences)
        values ($1, $2, $3, 0) on conflict (namespace, fingerprint) do update set occurrences = g.occurrences";
    sqlx::query(lock)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(task.as_uuid())
        .execute(&mut *tx)
        .await?;
    let take = sql!(
        "update holdoff.signals g set task = case when n.kept then g.task else $4 end,
            occurrences = case when g.task = $4 then greatest(g.occurrences, 1) when n.kept then g.occurrences + 1 else 1 end,
            first_at = case when n.kept then g.first_at else clock_timestamp() end, last_at = clock_timestamp()
        from (select g.task = $4 or ",
        IS_LIVE,
        " as kept from holdoff.signals g where g.namespace = $1 and g.fingerprint = $2) n
        where g.namespace = $1 and g.fingerprint = $2
        returning g.task, g.occurrences"
    );
    let (holder, occurrences): (Uuid, i64) = sqlx::query_as(take)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(as_micros_i64(key.failed_for))
        .bind(task.as_uuid())
        .fetch_one(tx)
        .await?;
    Ok(Signalled::of_holder(TaskId::from_uuid(holder), occurrences, Some(task)))
}
