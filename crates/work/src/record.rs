//! What is known about tasks and steps, for people and programs to look at.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::store::Outcome;
use crate::{Payload, StepId, StepState, TaskId, TaskState};

/// A moment by the store's clock, in microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment(pub(crate) i64);

impl Moment {
    /// So many microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time from an earlier moment to this one; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    fn to_system_time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(self.0).unwrap_or(0))
    }
}

/// As in `2026-11-15T08:30:00.250000Z`.
impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&humantime::format_rfc3339_millis(self.to_system_time()), f)
    }
}

impl Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A task and its steps.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TaskRecord {
    /// The task.
    pub id: TaskId,
    /// What its steps say.
    pub state: TaskState,
    /// The store's clock when this was read.
    pub now: Moment,
    /// Its steps by number.
    pub steps: Vec<StepRecord>,
    /// Attempts that did not succeed, of all steps, the oldest first.
    pub attempts: Vec<AttemptRecord>,
    /// Which step waits for which: from parent to child, by number.
    #[serde(skip)]
    pub edges: Vec<(i32, i32)>,
}

/// A step.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StepRecord {
    /// The step.
    pub id: StepId,
    /// Its name in the task's graph.
    pub name: Option<String>,
    /// What it is doing.
    pub state: StepState,
    /// Its namespace.
    pub namespace: String,
    /// Its queue.
    pub queue: String,
    /// Its operation.
    pub operation: String,
    /// Its policy's name when it was submitted.
    pub policy: String,
    /// From 0, which goes first, to 9.
    pub priority: u8,
    /// The host it calls, if it is an HTTP step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// How often it has failed since it was submitted or retried by hand.
    pub failures: u32,
    /// How often it lost its worker.
    pub rescues: u32,
    /// How often it was put back without having failed.
    pub snoozes: u32,
    /// How many parents have not succeeded yet.
    pub waiting_for: u32,
    /// When it was submitted.
    pub created_at: Moment,
    /// When it may run, or until when its worker has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Moment>,
    /// When the last attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attempted_at: Option<Moment>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Moment>,
    /// The class of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What was said about the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The fencing token: it grows with every claim, and with every change that an operator makes. Not shown, because
    /// it is of use only to those who change the step.
    #[serde(skip)]
    pub token: u64,
    /// What goes into it. Absent when it was not asked for, or is not kept any more.
    #[serde(skip)]
    pub payload: Option<Payload>,
    /// What came out of it.
    #[serde(skip)]
    pub output: Option<Payload>,
}

/// An attempt that did not succeed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// The step.
    pub step: StepId,
    /// The failures so far, this one included.
    pub attempt: u32,
    /// The fencing token it had.
    pub token: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began.
    pub started_at: Moment,
    /// How long it took.
    #[serde(rename = "took_us", serialize_with = "micros")]
    pub took: Duration,
    /// Who made it.
    pub worker: String,
    /// The class of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What was said about it, cut and scrubbed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The wait before the next attempt, if there was to be one.
    #[serde(rename = "delay_us", serialize_with = "some_micros", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
}

/// A task in a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskSummary {
    /// The task.
    pub id: TaskId,
    /// What its steps say.
    pub state: TaskState,
    /// Its namespace.
    pub namespace: String,
    /// The operation of its first step.
    pub operation: String,
    /// When it was submitted.
    pub created_at: Moment,
    /// When its last step ended, unless it still runs.
    pub ended_at: Option<Moment>,
    /// How many of its steps are in which state; only states that occur.
    pub steps: Vec<(StepState, u64)>,
}

/// One page of a list of tasks.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TaskPage {
    /// The tasks, newest first. There may be fewer than wanted, and even none, before the end.
    pub tasks: Vec<TaskSummary>,
    /// Where the next page begins; nothing at the end.
    pub next: Option<TaskId>,
}

/// How many steps of a queue and operation are in which state.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct QueueStats {
    /// The namespace.
    pub namespace: String,
    /// The queue.
    pub queue: String,
    /// The operation.
    pub operation: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Waiting for a parent.
    pub blocked: u64,
    /// Due now.
    pub due: u64,
    /// Due later.
    pub waiting: u64,
    /// With a worker.
    pub running: u64,
    /// Given up.
    pub failed: u64,
    /// Waiting for somebody to decide.
    pub conflicted: u64,
    /// Finished, and still in the history.
    pub succeeded: u64,
    /// Ready or running for longer than the staleness limit.
    pub stale: u64,
    /// How long the longest overdue step has been due.
    #[serde(rename = "oldest_due_us", serialize_with = "micros")]
    pub oldest_due: Duration,
}

impl QueueStats {
    /// Counts another one with this one; the names stay.
    pub(crate) fn add(&mut self, other: &Self) {
        self.blocked += other.blocked;
        self.due += other.due;
        self.waiting += other.waiting;
        self.running += other.running;
        self.failed += other.failed;
        self.conflicted += other.conflicted;
        self.succeeded += other.succeeded;
        self.stale += other.stale;
        self.oldest_due = self.oldest_due.max(other.oldest_due);
    }
}

fn micros<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

#[expect(clippy::ref_option, reason = "serde asks for it")]
fn some_micros<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    micros(&time.unwrap_or_default(), serializer)
}

/// Adds a group of steps in one state: all, due and stale ones, and how long the oldest has been due.
pub(crate) fn count(stats: &mut QueueStats, state: i16, counts: [i64; 3], oldest_us: Option<i64>) {
    let [all, due, stale] = counts.map(|count| u64::try_from(count).unwrap_or(0));
    stats.stale += stale;
    match StepState::of_code(state) {
        Some(StepState::Blocked) => stats.blocked += all,
        Some(StepState::Ready) => {
            stats.due += due;
            stats.waiting += all - due.min(all);
            let oldest = Duration::from_micros(u64::try_from(oldest_us.unwrap_or(0)).unwrap_or(0));
            stats.oldest_due = stats.oldest_due.max(oldest);
        }
        Some(StepState::Running) => stats.running += all,
        Some(StepState::Failed) => stats.failed += all,
        Some(StepState::Conflicted) => stats.conflicted += all,
        _ => {}
    }
}

/// Puts lanes together that differ in priority or kind only.
pub(crate) fn merge(lanes: impl Iterator<Item = QueueStats>) -> Vec<QueueStats> {
    let mut merged: std::collections::BTreeMap<_, QueueStats> = std::collections::BTreeMap::new();
    for lane in lanes {
        let key = (lane.namespace.clone(), lane.queue.clone(), lane.operation.clone());
        let Some(stats) = merged.get_mut(&key) else {
            merged.insert(key, lane);
            continue;
        };
        stats.paused |= lane.paused;
        stats.blocked += lane.blocked;
        stats.due += lane.due;
        stats.waiting += lane.waiting;
        stats.running += lane.running;
        stats.failed += lane.failed;
        stats.conflicted += lane.conflicted;
        stats.succeeded += lane.succeeded;
        stats.stale += lane.stale;
        stats.oldest_due = stats.oldest_due.max(lane.oldest_due);
    }
    merged.into_values().collect()
}
