//! Signals: at most one live task for each fingerprint.

use sqlx::types::Uuid;
use sqlx::{SqliteConnection, SqlitePool};

use super::Write;
use super::rows::micros;
use super::submit::submit;
use super::tasks::summaries;
use crate::engine::reading::{self, SignalRow};
use crate::store::{NewTask, Result, SignalKey};
use crate::{SignalRecord, Signalled, TaskId};

/// Whether the task of signal `g` suppresses signals; a failed task does if it ended after `?3`. Blocked steps need no
/// condition of their own, because the step that blocks them is found.
macro_rules! lives {
    () => {
        "g.namespace = ?1 and g.fingerprint = ?2 and exists (
            select 1 from holdoff_steps s where s.task = g.task
            and (s.state in (1, 2, 5) or (s.state = 4 and s.ended_at > ?3)))"
    };
}

/// Counts an occurrence. If the caller that created the task repeats its call because the response was lost, the
/// statement does not count it again.
const COUNT: &str = concat!(
    "update holdoff_signals as g set occurrences = g.occurrences + (g.task is not ?5), last_at = ?4 where ",
    lives!(),
    " returning task, occurrences"
);

pub(super) async fn signal(mut write: Write, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled> {
    let (tx, now) = (&mut *write.tx, write.now);
    let take = "insert into holdoff_signals (namespace, fingerprint, task, occurrences, first_at, last_at)
        values (?1, ?2, ?3, 1, ?4, ?4)
        on conflict (namespace, fingerprint) do update set task = excluded.task, occurrences = 1,
            first_at = excluded.first_at, last_at = excluded.last_at";
    let signalled = if let Some(counted) = count(tx, now, key, Some(task.id)).await? {
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
    Ok(signalled)
}

/// Returns the live task, if there is one. Waiting callers poll this often, and reading blocks no writer.
pub(super) async fn task(readers: &SqlitePool, now: i64, key: &SignalKey<'_>) -> Result<Option<TaskId>> {
    let look = concat!("select g.task from holdoff_signals g where ", lives!());
    let task: Option<Uuid> = sqlx::query_scalar(look)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(now.saturating_sub(micros(key.failed_for)))
        .fetch_optional(readers)
        .await?;
    Ok(task.map(TaskId::from_uuid))
}

pub(super) async fn signal_again(mut write: Write, key: &SignalKey<'_>) -> Result<Option<Signalled>> {
    let counted = count(&mut write.tx, write.now, key, None).await?;
    write.tx.commit().await?;
    Ok(counted)
}

async fn count(
    tx: &mut SqliteConnection,
    now: i64,
    key: &SignalKey<'_>,
    mine: Option<TaskId>,
) -> Result<Option<Signalled>> {
    let counted: Option<(Uuid, i64)> = sqlx::query_as(COUNT)
        .bind(key.namespace)
        .bind(&key.fingerprint.as_bytes()[..])
        .bind(now.saturating_sub(micros(key.failed_for)))
        .bind(now)
        .bind(mine.map(|task| task.as_uuid()))
        .fetch_optional(tx)
        .await?;
    Ok(counted.map(|(task, occurrences)| Signalled::kept(TaskId::from_uuid(task), occurrences, mine)))
}

pub(super) async fn signals(
    readers: &SqlitePool,
    namespace: Option<&str>,
    limit: u32,
) -> Result<Vec<SignalRecord>> {
    let mut tx = readers.begin().await?;
    let query = "select namespace, fingerprint, task, occurrences, first_at, last_at
        from holdoff_signals where ?1 is null or namespace = ?1
        order by last_at desc, namespace, fingerprint limit ?2";
    let rows: Vec<SignalRow> =
        sqlx::query_as(query).bind(namespace).bind(i64::from(limit)).fetch_all(&mut *tx).await?;
    let tasks: Vec<TaskId> = rows.iter().map(|(_, _, task, ..)| TaskId::from_uuid(*task)).collect();
    Ok(reading::signals(rows, summaries(&mut tx, &tasks).await?))
}
