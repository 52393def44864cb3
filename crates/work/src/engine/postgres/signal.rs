//! Signals: at most one live task for each fingerprint.

use sqlx::types::Uuid;
use sqlx::{PgConnection, PgPool};

use super::read::think_freely;
use super::submit::{micros, submit};
use super::tasks::summaries;
use crate::engine::reading::{self, SignalRow};
use crate::store::{NewTask, Result, SignalKey};
use crate::{SignalRecord, Signalled, TaskId};

/// Whether the task of signal `g` suppresses signals; `$3` is how long a failed task does. Blocked steps need no
/// condition of their own, because the step that blocks them is found.
macro_rules! lives {
    () => {
        "exists (select from holdoff.steps s where s.task = g.task and (s.state in (1, 2, 5)
            or (s.state = 4 and s.ended_at > clock_timestamp() - holdoff.span($3))))"
    };
}

pub(super) async fn signal(pool: &PgPool, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled> {
    let mut tx = pool.begin().await?;
    let holder = take(&mut tx, key, task.id).await?;
    if holder.task() == task.id {
        submit(&mut tx, std::slice::from_ref(task), true).await?;
    }
    tx.commit().await?;
    Ok(holder)
}

/// Takes the fingerprint for this task, unless another task holds it. The row is locked first, and a later statement
/// reads its task. If one statement did both, it could see the row of a concurrently created task but not its steps.
async fn take(tx: &mut PgConnection, key: &SignalKey<'_>, task: TaskId) -> Result<Signalled> {
    let lock = "insert into holdoff.signals as g (namespace, fingerprint, task, occurrences)
        values ($1, $2, $3, 0) on conflict (namespace, fingerprint) do update set occurrences = g.occurrences";
    sqlx::query(lock)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(task.as_uuid())
        .execute(&mut *tx)
        .await?;
    let take = concat!(
        "update holdoff.signals g set task = case when n.kept then g.task else $4 end,
            occurrences = case when g.task = $4 then greatest(g.occurrences, 1) when n.kept then g.occurrences + 1 else 1 end,
            first_at = case when n.kept then g.first_at else clock_timestamp() end, last_at = clock_timestamp()
        from (select g.task = $4 or ",
        lives!(),
        " as kept from holdoff.signals g where g.namespace = $1 and g.fingerprint = $2) n
        where g.namespace = $1 and g.fingerprint = $2
        returning g.task, g.occurrences"
    );
    let (holder, occurrences): (Uuid, i64) = sqlx::query_as(take)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(micros(key.failed_for))
        .bind(task.as_uuid())
        .fetch_one(tx)
        .await?;
    Ok(Signalled::kept(TaskId::from_uuid(holder), occurrences, Some(task)))
}

pub(super) async fn signal_again(pool: &PgPool, key: &SignalKey<'_>) -> Result<Option<Signalled>> {
    let count = concat!(
        "update holdoff.signals g set occurrences = g.occurrences + 1, last_at = clock_timestamp()
        where g.namespace = $1 and g.fingerprint = $2 and ",
        lives!(),
        " returning g.task, g.occurrences"
    );
    let counted: Option<(Uuid, i64)> = sqlx::query_as(count)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(micros(key.failed_for))
        .fetch_optional(pool)
        .await?;
    Ok(counted.map(|(task, occurrences)| Signalled::kept(TaskId::from_uuid(task), occurrences, None)))
}

pub(super) async fn task(pool: &PgPool, key: &SignalKey<'_>) -> Result<Option<TaskId>> {
    let look = concat!(
        "select g.task from holdoff.signals g where g.namespace = $1 and g.fingerprint = $2 and ",
        lives!()
    );
    let task: Option<Uuid> = sqlx::query_scalar(look)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(micros(key.failed_for))
        .fetch_optional(pool)
        .await?;
    Ok(task.map(TaskId::from_uuid))
}

pub(super) async fn signals(pool: &PgPool, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>> {
    let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
    think_freely(&mut tx).await?;
    let query =
        "select namespace, fingerprint, task, occurrences, holdoff.micros(first_at), holdoff.micros(last_at)
        from holdoff.signals where $1::text is null or namespace = $1
        order by last_at desc, namespace, fingerprint limit $2";
    let rows: Vec<SignalRow> =
        sqlx::query_as(query).bind(namespace).bind(i64::from(limit)).fetch_all(&mut *tx).await?;
    let tasks: Vec<TaskId> = rows.iter().map(|(_, _, task, ..)| TaskId::from_uuid(*task)).collect();
    Ok(reading::signals(rows, summaries(&mut tx, &tasks).await?))
}
