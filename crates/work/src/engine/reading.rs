//! Turns rows into records, for every engine alike. These are macros, because the engines' row types share no
//! convenient trait.

/// Reads a [`Claimed`](crate::store::Claimed) from the columns of a claim. Every run passes through here. The statement
/// fixes the column types, so they are not checked again for each value.
macro_rules! read_claim {
    ($row:expr) => {{
        let row = $row;
        let bytes: Option<Vec<u8>> = row.try_get_unchecked(13)?;
        let format = crate::payload::Format::of_code(row.try_get_unchecked(12)?);
        crate::store::Claimed {
            step: crate::TaskId::from_uuid(row.try_get_unchecked(0)?).step(row.try_get_unchecked(1)?),
            lane: row.try_get_unchecked(2)?,
            policy: row.try_get_unchecked(3)?,
            lease: row.try_get_unchecked(4)?,
            failures: row.try_get_unchecked(5)?,
            last_delay: crate::engine::reading::duration(row.try_get_unchecked(6)?),
            elapsed: crate::engine::reading::duration(row.try_get_unchecked(7)?),
            refreshed: row.try_get_unchecked(8)?,
            has_parents: row.try_get_unchecked(9)?,
            has_children: row.try_get_unchecked(10)?,
            trace: row.try_get_unchecked(11)?,
            payload: crate::Payload { format, bytes: bytes.unwrap_or_default().into() },
            whereabouts: row.try_get_unchecked::<Option<String>, _>(14)?.map(Into::into),
            destination: row.try_get_unchecked::<Option<String>, _>(15)?.map(Into::into),
        }
    }};
}

/// Reads a held step and the time since its claim: the columns of a claim, and one more.
macro_rules! read_held {
    ($row:expr) => {{
        let row = $row;
        let claimed = crate::engine::reading::read_claim!(row);
        (claimed, crate::engine::reading::duration(row.try_get_unchecked(16)?))
    }};
}

/// Reads a [`StepRecord`](crate::StepRecord) of a finished or an unfinished step from [`STEP`]'s columns.
macro_rules! read_step {
    ($row:expr, is_over: $is_over:expr, with_payload: $with_payload:expr) => {{
        let row = $row;
        let bytes: Option<Vec<u8>> = row.try_get(21)?;
        let format = crate::payload::Format::of_code(row.try_get(18)?);
        let payload = crate::Payload { format, bytes: bytes.unwrap_or_default().into() };
        let payload = Some(payload).filter(|_| $with_payload);
        let (payload, output) = if $is_over { (None, payload) } else { (payload, None) };
        let moment = |index: usize| {
            Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(index)?.map(crate::record::Moment))
        };
        let count =
            |index: usize| Ok::<_, sqlx::Error>(u32::try_from(row.try_get::<i32, _>(index)?).unwrap_or(0));
        let state = crate::StepState::of_code(row.try_get(3)?).unwrap_or(crate::StepState::Failed);
        let has_due = matches!(state, crate::StepState::Ready | crate::StepState::Running);
        crate::record::StepRecord {
            id: crate::TaskId::from_uuid(row.try_get(0)?).step(row.try_get(1)?),
            name: row.try_get(2)?,
            state,
            namespace: row.try_get(4)?,
            queue: row.try_get(5)?,
            operation: row.try_get(6)?,
            policy: row.try_get::<Option<String>, _>(7)?.unwrap_or_default(),
            priority: u8::try_from(row.try_get::<i16, _>(8)?).unwrap_or(u8::MAX),
            destination: row.try_get(9)?,
            failures: count(10)?,
            rescues: count(11)?,
            snoozes: count(12)?,
            waiting_for: count(19)?,
            created_at: crate::record::Moment(row.try_get(13)?),
            due_at: moment(20)?.filter(|_| has_due),
            last_attempted_at: moment(14)?,
            ended_at: moment(15)?,
            class: row.try_get(16)?,
            message: row.try_get(17)?,
            token: u64::try_from(row.try_get::<i64, _>(22)?).unwrap_or(0),
            payload,
            output,
        }
    }};
}

/// Reads an [`AttemptRecord`](crate::AttemptRecord) of this task.
macro_rules! read_attempt {
    ($task:expr, $row:expr) => {{
        let row = $row;
        crate::record::AttemptRecord {
            step: $task.step(row.try_get(0)?),
            attempt: u32::try_from(row.try_get::<i32, _>(1)?).unwrap_or(0),
            token: u64::try_from(row.try_get::<i64, _>(2)?).unwrap_or(0),
            outcome: crate::store::Outcome::of_code(row.try_get(3)?).unwrap_or(crate::store::Outcome::Failed),
            started_at: crate::record::Moment(row.try_get(4)?),
            took: crate::engine::reading::duration(row.try_get(5)?),
            worker: row.try_get(6)?,
            class: row.try_get(7)?,
            message: row.try_get(8)?,
            delay: row.try_get::<Option<i64>, _>(9)?.map(crate::engine::reading::duration),
        }
    }};
}

pub(crate) use {read_attempt, read_claim, read_held, read_step};

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::types::Uuid;

use crate::node::NodeRecord;
use crate::record::{self, Moment, QueueStats, TaskSummary};
use crate::{Fingerprint, SignalRecord, StepState, TaskId, TaskState};

pub(crate) fn duration(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// A lane: number, namespace, queue, operation, and whether it is paused.
pub(crate) type LaneRow = (i32, String, String, String, bool);
/// The counts of a group of steps: lane, state, all, due, stale, and how long the oldest has been due.
pub(crate) type Group = (i32, i16, i64, i64, i64, Option<i64>);

/// The steps of a task in one state: task, state, their number, the first submission, the last end, the namespace, and
/// the operation of the task's first step if it is among them.
pub(crate) type TaskRow = (Uuid, i16, i64, i64, Option<i64>, String, Option<String>);

/// Returns task summaries computed from groups of steps, newest first.
pub(crate) fn tasks(rows: Vec<TaskRow>) -> Vec<TaskSummary> {
    let mut tasks: BTreeMap<TaskId, TaskSummary> = BTreeMap::new();
    for (id, state, count, created_at, ended_at, namespace, operation) in rows {
        let id = TaskId::from_uuid(id);
        let task = tasks.entry(id).or_insert_with(|| TaskSummary {
            id,
            state: TaskState::Succeeded,
            namespace,
            operation: String::new(),
            created_at: Moment(created_at),
            ended_at: None,
            steps: Vec::new(),
        });
        task.created_at = task.created_at.min(Moment(created_at));
        task.ended_at = task.ended_at.max(ended_at.map(Moment));
        task.operation = operation.unwrap_or_else(|| std::mem::take(&mut task.operation));
        let state = StepState::of_code(state).unwrap_or(StepState::Failed);
        task.steps.push((state, u64::try_from(count).unwrap_or(0)));
    }
    for task in tasks.values_mut() {
        task.steps.sort_unstable();
        task.state = TaskState::of(task.steps.iter().map(|(state, _)| *state));
        task.ended_at = task.ended_at.filter(|_| task.state != TaskState::Running);
    }
    tasks.into_values().rev().collect()
}

/// A signal: namespace, fingerprint, task, occurrences, first and last occurrence.
pub(crate) type SignalRow = (String, Vec<u8>, Uuid, i64, i64, i64);

/// Returns signals with the states of their tasks.
pub(crate) fn signals(rows: Vec<SignalRow>, tasks: Vec<TaskSummary>) -> Vec<SignalRecord> {
    let tasks: BTreeMap<TaskId, TaskSummary> = tasks.into_iter().map(|task| (task.id, task)).collect();
    let record = |(namespace, fingerprint, task, occurrences, first_at, last_at): SignalRow| {
        let task = TaskId::from_uuid(task);
        let known = tasks.get(&task);
        SignalRecord {
            namespace,
            fingerprint: Fingerprint::shown(&fingerprint),
            task,
            state: known.map_or(TaskState::Succeeded, |known| known.state),
            operation: known.map(|known| known.operation.clone()).unwrap_or_default(),
            occurrences: u64::try_from(occurrences).unwrap_or(0),
            first_at: Moment(first_at),
            last_at: Moment(last_at),
        }
    };
    rows.into_iter().map(record).collect()
}

/// A node: name, version, start, last report, policies, drift, running, slots, finished, and whether it is alive.
pub(crate) type NodeRecordRow = (String, String, i64, i64, String, Option<String>, i64, i64, i64, bool);

pub(crate) fn node(row: NodeRecordRow) -> NodeRecord {
    let (name, version, started_at, seen_at, policies, drift, running, places, finished, is_alive) = row;
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    // A dead node runs nothing.
    let now = |value: i64| if is_alive { count(value) } else { 0 };
    NodeRecord {
        name,
        version,
        started_at: Moment(started_at),
        seen_at: Moment(seen_at),
        policies,
        drift,
        running: now(running),
        places: count(places),
        finished_last_minute: now(finished),
        is_alive,
    }
}

/// Returns the statistics of every lane that has steps or is paused.
pub(crate) fn stats(lanes: Vec<LaneRow>, groups: Vec<Group>, done: Vec<(i32, i64)>) -> Vec<QueueStats> {
    let mut by_lane: BTreeMap<i32, (QueueStats, bool)> = BTreeMap::new();
    for (id, namespace, queue, operation, paused) in lanes {
        by_lane.insert(
            id,
            (QueueStats { namespace, queue, operation, paused, ..QueueStats::default() }, paused),
        );
    }
    for (lane, state, all, due, stale, oldest_us) in groups {
        if let Some((stats, is_used)) = by_lane.get_mut(&lane) {
            *is_used = true;
            record::count(stats, state, [all, due, stale], oldest_us);
        }
    }
    for (lane, count) in done {
        if let Some((stats, is_used)) = by_lane.get_mut(&lane) {
            *is_used = true;
            stats.succeeded += u64::try_from(count).unwrap_or(0);
        }
    }
    record::merge(by_lane.into_values().filter(|(_, is_used)| *is_used).map(|(stats, _)| stats))
}
