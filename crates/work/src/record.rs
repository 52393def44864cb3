//! Records of tasks and steps, for operators and programs.

use std::time::{Duration, SystemTime};

use holdoff_policy::GiveUpReason;
use serde::Serialize;

use crate::store::AttemptOutcome;
use crate::{Payload, StepId, StepState, TaskId, TaskState};

/// A time by the store's clock, in microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment(pub(crate) i64);

impl Moment {
    /// Creates a moment from microseconds since 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the time from an earlier moment to this one, or zero if that moment is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    fn to_system_time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(self.0).unwrap_or(0))
    }
}

/// Formats the moment like `2026-11-15T08:30:00.250Z`.
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
    /// The state, computed from its steps.
    pub state: TaskState,
    /// The store's clock at the time of the read.
    pub now: Moment,
    /// The steps, by number.
    pub steps: Vec<StepRecord>,
    /// Attempts that did not succeed, of all steps, the oldest first.
    pub attempts: Vec<AttemptRecord>,
    /// The dependencies between steps: from parent to child, by number.
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
    /// The state.
    pub state: StepState,
    /// The namespace.
    pub namespace: String,
    /// The queue.
    pub queue: String,
    /// The operation.
    pub operation: String,
    /// The name of the policy it was submitted with.
    pub policy: String,
    /// The priority, from 0, which is claimed first, to 9.
    pub priority: u8,
    /// The host it calls, if it is an HTTP step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The number of failures since it was submitted or retried by an operator.
    pub failures: u32,
    /// The number of times that its worker was lost.
    pub rescues: u32,
    /// The number of times that it was requeued without a failure.
    pub snoozes: u32,
    /// The number of parents that have not succeeded yet.
    pub waiting_for: u32,
    /// When it was submitted.
    pub created_at: Moment,
    /// When it becomes due; while it is running, when its lease ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Moment>,
    /// The start-by time: no attempt begins later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Moment>,
    /// When the last attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attempted_at: Option<Moment>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Moment>,
    /// The reason why it failed finally; `None` unless it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// The class of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The message of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The fencing token. It grows with every claim, and with every change that an operator makes. It is not
    /// serialized, because only callers that change the step need it.
    #[serde(skip)]
    pub token: u64,
    /// The payload. `None` if it was not requested, or is no longer kept.
    #[serde(skip)]
    pub payload: Option<Payload>,
    /// The output.
    #[serde(skip)]
    pub output: Option<Payload>,
}

/// An attempt that did not succeed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// The step it belongs to.
    pub step: StepId,
    /// The number of failures so far, this one included.
    pub attempt: u32,
    /// The fencing token of the attempt.
    pub token: u64,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// When it began.
    pub started_at: Moment,
    /// How long it took.
    #[serde(rename = "took_us", serialize_with = "serialize_micros")]
    pub took: Duration,
    /// The name of the worker that made it.
    pub worker: String,
    /// The class of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The message, truncated and scrubbed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reason why there was no further attempt, if the step failed finally.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// The wait that the other side asked for (`Retry-After`).
    #[serde(
        rename = "retry_after_us",
        serialize_with = "serialize_some_micros",
        skip_serializing_if = "Option::is_none"
    )]
    pub retry_after: Option<Duration>,
    /// The wait before the next attempt, if there was to be one.
    #[serde(
        rename = "delay_us",
        serialize_with = "serialize_some_micros",
        skip_serializing_if = "Option::is_none"
    )]
    pub delay: Option<Duration>,
    /// What determined the wait, if the policy granted a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_source: Option<DelaySource>,
}

/// The reason why a step failed finally.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FailureReason {
    /// The failure will not pass by itself, or the operation must not be repeated.
    Permanent,
    /// All attempts of the policy are used up.
    Exhausted,
    /// The time left before the policy's deadline is too short for another attempt.
    Deadline,
    /// The other side asked for a longer wait than the policy's limit.
    RetryAfterTooLong,
    /// Its worker was lost too often in a row.
    TooManyRescues,
    /// It was not started by its start-by time.
    Expired,
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Permanent,
        Self::Exhausted,
        Self::Deadline,
        Self::RetryAfterTooLong,
        Self::TooManyRescues,
        Self::Expired,
    ];

    /// Returns the word used in output, logs and metrics: that of [`GiveUpReason`] where the policy gave up.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => GiveUpReason::Permanent.name(),
            Self::Exhausted => GiveUpReason::Exhausted.name(),
            Self::Deadline => GiveUpReason::Deadline.name(),
            Self::RetryAfterTooLong => GiveUpReason::RetryAfter.name(),
            Self::TooManyRescues => "too_many_rescues",
            Self::Expired => "expired",
        }
    }

    /// Returns the reason as a clause.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Permanent => "the failure is permanent, or the operation must not be repeated",
            Self::Exhausted => "all attempts are used up",
            Self::Deadline => "the time left before the deadline is too short",
            Self::RetryAfterTooLong => "the other side asked for a longer wait than the policy's limit",
            Self::TooManyRescues => "its worker was lost too often in a row",
            Self::Expired => "it was not started by its start-by time",
        }
    }

    /// Returns the number that the stores keep. A number is never reused for another reason.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Permanent => 0,
            Self::Exhausted => 1,
            Self::Deadline => 2,
            Self::RetryAfterTooLong => 3,
            Self::TooManyRescues => 4,
            Self::Expired => 5,
        }
    }

    /// Returns the reason with this number.
    pub(crate) fn of_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl From<GiveUpReason> for FailureReason {
    fn from(reason: GiveUpReason) -> Self {
        match reason {
            GiveUpReason::Exhausted => Self::Exhausted,
            GiveUpReason::Deadline => Self::Deadline,
            GiveUpReason::RetryAfter => Self::RetryAfterTooLong,
            // A later policy may return a reason that this store cannot represent; the policy grants no retry.
            _ => Self::Permanent,
        }
    }
}

impl Serialize for FailureReason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What determined the wait before the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DelaySource {
    /// The policy.
    Policy,
    /// The other side: the policy alone would have waited less than `Retry-After` asked for.
    Server,
}

impl DelaySource {
    /// Every source.
    pub const ALL: [Self; 2] = [Self::Policy, Self::Server];

    /// Returns the word used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Server => "server",
        }
    }

    /// Returns the number that the stores keep.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Policy => 0,
            Self::Server => 1,
        }
    }

    /// Returns the source with this number.
    pub(crate) fn of_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.code() == code)
    }
}

/// A task in a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskSummary {
    /// The task.
    pub id: TaskId,
    /// The state, computed from its steps.
    pub state: TaskState,
    /// The namespace.
    pub namespace: String,
    /// The operation of its first step.
    pub operation: String,
    /// When it was submitted.
    pub created_at: Moment,
    /// When its last step ended; `None` while the task is running.
    pub ended_at: Option<Moment>,
    /// The number of its steps by state; only states that occur.
    pub steps: Vec<(StepState, u64)>,
}

/// One page of a list of tasks.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TaskPage {
    /// The tasks, newest first. There may be fewer than requested, and even none, before the end.
    pub tasks: Vec<TaskSummary>,
    /// The position at which the next page begins; `None` at the end.
    pub next: Option<TaskId>,
}

/// The numbers of steps of a queue and operation, by state.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct QueueStats {
    /// The namespace.
    pub namespace: String,
    /// The queue.
    pub queue: String,
    /// The operation.
    pub operation: String,
    /// Whether the queue or the operation is paused.
    pub paused: bool,
    /// Steps that wait for a parent.
    pub blocked: u64,
    /// Ready steps that are due.
    pub due: u64,
    /// Ready steps that are due later.
    pub waiting: u64,
    /// Steps that a worker holds.
    pub running: u64,
    /// Steps that failed finally.
    pub failed: u64,
    /// Steps that wait for an operator's decision.
    pub conflicted: u64,
    /// Steps that succeeded and are still in the history.
    pub succeeded: u64,
    /// Ready and running steps that were submitted longer ago than the staleness limit.
    pub stale: u64,
    /// How long the oldest due step has been due.
    #[serde(rename = "oldest_due_us", serialize_with = "serialize_micros")]
    pub oldest_due: Duration,
}

impl QueueStats {
    /// Adds the counts of another record; the names stay.
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

fn serialize_micros<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(holdoff_policy::as_micros_u64(*time))
}

#[expect(clippy::ref_option, reason = "serde asks for it")]
fn serialize_some_micros<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serialize_micros(&time.unwrap_or_default(), serializer)
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

/// Merges lanes that differ only in priority or kind.
pub(crate) fn merge(lanes: impl Iterator<Item = QueueStats>) -> Vec<QueueStats> {
    let mut merged: std::collections::BTreeMap<_, QueueStats> = std::collections::BTreeMap::new();
    for lane in lanes {
        let key = (lane.namespace.clone(), lane.queue.clone(), lane.operation.clone());
        let Some(stats) = merged.get_mut(&key) else {
            merged.insert(key, lane);
            continue;
        };
        stats.paused |= lane.paused;
        stats.add(&lane);
    }
    merged.into_values().collect()
}
