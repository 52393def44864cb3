//! The JSON representation of tasks, steps, locks and ledgers.

mod ledger;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdoff_lock::{Holder, LockRecord, Token};
use holdoff_policy::as_micros_u64;
use holdoff_work::{
    AttemptOutcome, AttemptRecord, DelaySource, FailureReason, Format, Moment, Payload, StepId, StepRecord,
    StepState, TaskId, TaskRecord, TaskState,
};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::schema;

pub(crate) use ledger::{
    CommandView, EntryView, LedgerView, ResultView, ValueView, diff_lines, goal_text, highest, is_own,
    read_key, role,
};

/// A task with its steps and their attempts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub struct TaskView<'a> {
    #[schema(value_type = schema::TaskIdText)]
    id: TaskId,
    #[schema(value_type = schema::TaskStateWord)]
    state: TaskState,
    /// The time of the read, by the store's clock.
    #[schema(value_type = schema::MomentText)]
    now: Moment,
    /// The steps, by number.
    steps: Vec<StepView<'a>>,
    /// The failed attempts of all steps, oldest first.
    attempts: Vec<AttemptView<'a>>,
}

impl<'a> TaskView<'a> {
    /// Returns the representation of a task. A JSON payload stays as it was written. Other bytes are in base64, under
    /// another name.
    pub fn new(record: &'a TaskRecord) -> Self {
        Self {
            id: record.id,
            state: record.state,
            now: record.now,
            steps: record.steps.iter().map(StepView::new).collect(),
            attempts: record.attempts.iter().map(AttemptView::new).collect(),
        }
    }
}

/// A step. The payload and the output are present if they were requested.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Step)]
pub(crate) struct StepView<'a> {
    #[schema(value_type = schema::StepIdText)]
    id: StepId,
    /// The name in the task's graph.
    name: Option<&'a str>,
    #[schema(value_type = schema::StepStateWord)]
    state: StepState,
    namespace: &'a str,
    queue: &'a str,
    operation: &'a str,
    /// The name of its policy at submission.
    policy: &'a str,
    /// The priority, from 0 (first) to 9.
    #[schema(maximum = 9)]
    priority: u8,
    /// The host of an HTTP step.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<&'a str>,
    /// The number of failures since the submission or the last manual retry.
    failures: u32,
    /// The number of rescues after a lost worker.
    rescues: u32,
    /// The number of postponements without a failure.
    snoozes: u32,
    /// The number of dependencies that have not succeeded yet.
    waiting_for: u32,
    #[schema(value_type = schema::MomentText)]
    created_at: Moment,
    /// The time at which the step is due, or at which the lease of its worker expires.
    #[schema(value_type = schema::MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Moment>,
    /// The start-by time: no attempt begins later.
    #[schema(value_type = schema::MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Moment>,
    /// The start of the last attempt.
    #[schema(value_type = schema::MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempted_at: Option<Moment>,
    #[schema(value_type = schema::MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Moment>,
    /// The reason why the step failed finally.
    #[schema(value_type = schema::FailureReasonWord, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<FailureReason>,
    /// The class of the last failure.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    /// The message of the last failure.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// The payload, until the step has ended.
    #[schema(value_type = serde_json::Value, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[schema(nullable = false, content_encoding = "base64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// The output.
    #[schema(value_type = serde_json::Value, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[schema(nullable = false, content_encoding = "base64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

impl<'a> StepView<'a> {
    pub(crate) fn new(step: &'a StepRecord) -> Self {
        let (payload, payload_base64) = encode(step.payload.as_ref());
        let (output, output_base64) = encode(step.output.as_ref());
        Self {
            id: step.id,
            name: step.name.as_deref(),
            state: step.state,
            namespace: &step.namespace,
            queue: &step.queue,
            operation: &step.operation,
            policy: &step.policy,
            priority: step.priority,
            destination: step.destination.as_deref(),
            failures: step.failures,
            rescues: step.rescues,
            snoozes: step.snoozes,
            waiting_for: step.waiting_for,
            created_at: step.created_at,
            due_at: step.due_at,
            expires_at: step.expires_at,
            last_attempted_at: step.last_attempted_at,
            ended_at: step.ended_at,
            reason: step.reason,
            class: step.class.as_deref(),
            message: step.message.as_deref(),
            payload,
            payload_base64,
            output,
            output_base64,
        }
    }
}

/// An attempt that did not succeed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptView<'a> {
    #[schema(value_type = schema::StepIdText)]
    step: StepId,
    /// The number of failures so far, including this one.
    attempt: u32,
    /// The fencing token of the attempt.
    token: u64,
    #[schema(value_type = schema::OutcomeWord)]
    outcome: AttemptOutcome,
    #[schema(value_type = schema::MomentText)]
    started_at: Moment,
    /// The duration, in microseconds.
    took_us: u64,
    /// The name of the worker.
    worker: &'a str,
    /// The class of the failure.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    /// The message, truncated and redacted.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// The reason why there was no further attempt, if the step failed finally.
    #[schema(value_type = schema::FailureReasonWord, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<FailureReason>,
    /// The delay that the other side asked for (`Retry-After`), in microseconds.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_us: Option<u64>,
    /// The delay before the next attempt in microseconds, if one was planned.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<u64>,
    /// What determined the delay of a retry: the policy, or the server if the policy alone would have waited less than
    /// `Retry-After` asked for.
    #[schema(value_type = schema::DelaySourceWord, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_source: Option<DelaySource>,
}

impl<'a> AttemptView<'a> {
    pub(crate) fn new(attempt: &'a AttemptRecord) -> Self {
        Self {
            step: attempt.step,
            attempt: attempt.attempt,
            token: attempt.token,
            outcome: attempt.outcome,
            started_at: attempt.started_at,
            took_us: as_micros_u64(attempt.took),
            worker: &attempt.worker,
            class: attempt.class.as_deref(),
            message: attempt.message.as_deref(),
            reason: attempt.reason,
            retry_after_us: attempt.retry_after.map(as_micros_u64),
            delay_us: attempt.delay.map(as_micros_u64),
            delay_source: attempt.delay_source,
        }
    }
}

/// Returns a payload as JSON, or in base64 if it is not JSON.
pub(crate) fn encode(payload: Option<&Payload>) -> (Option<&RawValue>, Option<String>) {
    let Some(payload) = payload.filter(|payload| payload.format() != Format::Empty) else {
        return (None, None);
    };
    let bytes = payload.as_bytes();
    match serde_json::from_slice(bytes) {
        Ok(json) if payload.format() == Format::Json => (Some(json), None),
        _ => (None, Some(STANDARD.encode(bytes))),
    }
}

/// A lock. Durations are in seconds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lock)]
pub struct LockView<'a> {
    namespace: &'a str,
    /// The key, in readable form.
    key: &'a str,
    /// The SHA-256 of the key.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    digest: &'a str,
    /// The highest fencing token that was granted.
    #[schema(value_type = schema::TokenText)]
    token: Token,
    held: bool,
    holder: Option<HolderView>,
    /// The approximate number of waiters.
    waiting: u32,
}

/// The holder of a lock. Durations are in seconds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Holder)]
pub struct HolderView {
    name: String,
    #[schema(value_type = schema::TokenText)]
    token: Token,
    #[schema(minimum = 0)]
    held_for: f64,
    #[schema(minimum = 0)]
    expires_in: f64,
}

impl<'a> LockView<'a> {
    /// Returns the representation of a lock. It omits the holder's nonce, with which any caller could release the lock.
    pub fn new(record: &'a LockRecord) -> Self {
        Self {
            namespace: &record.namespace,
            key: &record.key,
            digest: &record.digest,
            token: record.token,
            held: record.holder.is_some(),
            holder: record.holder.as_ref().map(HolderView::new),
            waiting: record.waiting,
        }
    }
}

impl HolderView {
    pub(crate) fn new(holder: &Holder) -> Self {
        Self {
            name: holder.owner.name.clone(),
            token: holder.token,
            held_for: seconds(holder.held_for),
            expires_in: seconds(holder.ends_in),
        }
    }
}

/// Returns seconds, rounded down to the millisecond.
pub(crate) fn seconds(time: Duration) -> f64 {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).as_secs_f64()
}
