//! Rescues steps from workers that vanished.

use sqlx::PgPool;
use sqlx::types::Uuid;

use super::claim::step_id;
use super::submit::{micros, submit};
use crate::engine::{POISON, exits};
use crate::store::{RescueRule, Rescued, Result, Tell};

/// The rescue. It finds expired leases in two ranges of the index: among renewed leases by their end, and among steps
/// claimed but never renewed near the head of each lane, because claimed steps precede all others there.
///
/// The wait is computed by the step's own policy, as after that many failures, and is at least the configured minimum.
/// The database draws the random numbers, so that thousands of steps of one dead worker return spread out. The
/// statement counts rescues, not failures. It skips steps that another transaction is renewing, finishing or rescuing,
/// because waiting for them could deadlock.
const RESCUE: &str = "with found as (
        select x.task, x.step from holdoff.lanes l cross join lateral (
            (
                select s.task, s.step from holdoff.steps s
                where s.lane = l.id and s.line = 3 and s.due_at < (select clock_timestamp())
                order by s.due_at limit $3
            ) union all (
                select h.task, h.step from (
                    select s.task, s.step, s.state, s.leased_until from holdoff.steps s
                    where s.lane = l.id and s.line = 1 and s.due_at < (select clock_timestamp())
                    order by s.due_at limit 10000
                ) h
                where h.state = 2 and h.leased_until < (select clock_timestamp()) limit $3
            )
        ) x limit $3
    ), lost as (
        select s.task, s.step from found x join holdoff.steps s on s.task = x.task and s.step = x.step
        where s.state = 2 and s.leased_until < clock_timestamp()
        for update of s skip locked
    ), back as (
        update holdoff.steps s set
            state = case when s.rescues >= $1 then 4 else 1 end,
            line = case when s.rescues >= $1 then 2 else 1 end,
            leased_until = null,
            lease = s.lease + 1,
            rescues = s.rescues + 1,
            ended_at = case when s.rescues >= $1 then clock_timestamp() end,
            class = case when s.rescues >= $1 then 'timeout' else s.class end,
            message = case when s.rescues >= $1 then $4 else s.message end,
            due_at = clock_timestamp() + holdoff.span(coalesce(
                holdoff.next_due(s.policy, s.rescues + 1, s.last_delay_us, floor(random() * 4294967296)::bigint, $2),
                holdoff.next_due(s.policy, 1, s.last_delay_us, floor(random() * 4294967296)::bigint, $2),
                $2 + floor(random() * $2)::bigint))
        from lost where s.task = lost.task and s.step = lost.step and s.state = 2 and s.leased_until < clock_timestamp()
        returning s.task, s.step, s.lease - 1 as lease, s.failures, s.worker, s.claimed_at, s.state, s.lane, s.due_at
    ), logged as (
        insert into holdoff.attempts (task, step, lease, attempt, outcome, worker, started_at, took_us, delay_us,
            class, message)
        select task, step, lease, failures, 7, worker, claimed_at,
            holdoff.micros(clock_timestamp()) - holdoff.micros(claimed_at),
            case when state = 1 then greatest(0, holdoff.micros(due_at) - holdoff.micros(clock_timestamp())) end,
            'timeout', case when state = 4 then $4 else 'its worker vanished' end
        from back
    )
    select task, step, lane, state, failures from back";

pub(super) async fn rescue(pool: &PgPool, rule: RescueRule, tell: Tell<'_>) -> Result<Rescued> {
    let mut tx = pool.begin().await?;
    let rows: Vec<(Uuid, i32, i32, i16, i32)> = sqlx::query_as(RESCUE)
        .bind(i32::try_from(rule.max_rescues).unwrap_or(i32::MAX))
        .bind(micros(rule.least_delay))
        .bind(rule.limit)
        .bind(POISON)
        .fetch_all(&mut *tx)
        .await?;
    let back: Vec<exits::Back> = rows
        .into_iter()
        .map(|(task, step, lane, state, failures)| (step_id(task, step), lane, state, failures))
        .collect();
    let (messages, rescued) = exits::tell_of_rescue(&back, tell);
    submit(&mut tx, &messages, false).await?;
    tx.commit().await?;
    Ok(rescued)
}
