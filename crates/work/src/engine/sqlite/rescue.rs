//! Rescues steps from workers that vanished.

use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, SqlitePool};

use super::Write;
use super::claim::step_id;
use super::rows::{self, micros};
use super::submit::submit;
use crate::engine::{POISON, exits};
use crate::store::{RescueRule, Rescued, Result, Tell};
use crate::{StepId, next_due};

pub(super) const LOST: &str = "select s.task, s.step from holdoff_lanes l
    cross join holdoff_steps s on s.lane = l.id and s.state = 2 and s.due_at < ?1";

pub(super) async fn is_any_lost(readers: &SqlitePool, now: i64) -> Result<bool> {
    let query = format!("{LOST} limit 1");
    Ok(sqlx::query(AssertSqlSafe(query)).bind(now).fetch_optional(readers).await?.is_some())
}

pub(super) async fn rescue(mut write: Write, rule: RescueRule, tell: Tell<'_>) -> Result<Rescued> {
    let max_rescues = i64::from(rule.max_rescues);
    let policy = "(select p.compiled from holdoff_policies p where p.id = s.policy)";
    let delay =
        |attempt| next_due::sqlite(policy, attempt, "s.last_delay_us", "(random() & 4294967295)", "?5");
    // The wait is computed by the step's own policy, as after that many failures, and is at least the configured
    // minimum. The statement draws the random numbers, so that the steps of one dead worker return spread out. It
    // counts rescues, not failures.
    let update = format!(
        "update holdoff_steps as s set
            state = iif(s.rescues >= ?2, 4, 1),
            lease = s.lease + 1,
            rescues = s.rescues + 1,
            ended_at = iif(s.rescues >= ?2, ?1, null),
            class = iif(s.rescues >= ?2, 'timeout', s.class),
            message = iif(s.rescues >= ?2, ?3, s.message),
            due_at = ?1 + coalesce({}, {}, ?5 + (random() & 65535) * ?5 / 65536)
        where (s.task, s.step) in ({LOST} limit ?4)
        returning task, step, lane, state, failures",
        delay("s.rescues + 1"),
        delay("1")
    );
    let rows: Vec<(Uuid, i32, i32, i16, i32)> = sqlx::query_as(AssertSqlSafe(update))
        .bind(write.now)
        .bind(max_rescues)
        .bind(POISON)
        .bind(rule.limit)
        .bind(micros(rule.least_delay))
        .fetch_all(&mut *write.tx)
        .await?;
    let log = "insert into holdoff_attempts (task, step, lease, attempt, outcome, worker, started_at, took_us, delay_us,
            class, message)
        select s.task, s.step, s.lease - 1, s.failures, 7, s.worker, s.claimed_at,
            ?1 - s.claimed_at, iif(s.state = 4, null, s.due_at - ?1), 'timeout',
            iif(s.state = 4, ?2, 'its worker vanished')
        from json_each(?3) x
        cross join holdoff_steps s on s.task = unhex(x.value ->> 0) and s.step = x.value ->> 1
        where true
        on conflict do nothing";
    let back: Vec<StepId> = rows.iter().map(|(task, step, ..)| step_id(*task, *step)).collect();
    sqlx::query(log).bind(write.now).bind(POISON).bind(rows::steps(&back)).execute(&mut *write.tx).await?;
    let back: Vec<exits::Back> = rows
        .into_iter()
        .map(|(task, step, lane, state, failures)| (step_id(task, step), lane, state, failures))
        .collect();
    let (messages, rescued) = exits::tell_of_rescue(&back, tell);
    submit(&mut write.tx, write.now, &messages, false).await?;
    write.tx.commit().await?;
    Ok(rescued)
}
