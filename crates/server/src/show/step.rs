//! The JSON representation of a step and its attempts.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdoff_work::{AttemptRecord, Format, Moment, Outcome, Payload, StepId, StepRecord, StepState};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::schema;

/// A step, with its output, and with its payload if that was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Step)]
pub(crate) struct ShownStep<'a> {
    #[schema(value_type = schema::StepIdText)]
    id: StepId,
    /// Its name in the task's graph.
    name: Option<&'a str>,
    #[schema(value_type = schema::StepStateWord)]
    state: StepState,
    namespace: &'a str,
    queue: &'a str,
    operation: &'a str,
    /// Its policy's name when it was submitted.
    policy: &'a str,
    /// From 0, which goes first, to 9.
    #[schema(maximum = 9)]
    priority: u8,
    /// The host it calls, if it is an HTTP step.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<&'a str>,
    /// How often it has failed since it was submitted or retried by hand.
    failures: u32,
    /// How often it lost its worker.
    rescues: u32,
    /// How often it was put back without having failed.
    snoozes: u32,
    /// How many parents have not succeeded yet.
    waiting_for: u32,
    #[schema(value_type = schema::MomentText)]
    created_at: Moment,
    /// When it may run, or until when its worker has it.
    #[schema(value_type = schema::MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Moment>,
    /// When the last attempt began.
    #[schema(value_type = schema::MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempted_at: Option<Moment>,
    #[schema(value_type = schema::MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Moment>,
    /// The class of the last failure.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    /// What was said about the last failure.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// What goes into it, if that was asked for.
    #[schema(value_type = serde_json::Value, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[schema(nullable = false, content_encoding = "base64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// What came out of it.
    #[schema(value_type = serde_json::Value, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[schema(nullable = false, content_encoding = "base64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

impl<'a> ShownStep<'a> {
    pub(crate) fn new(step: &'a StepRecord, payloads: bool) -> Self {
        let (payload, payload_base64) = encode(step.payload.as_ref().filter(|_| payloads));
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
            last_attempted_at: step.last_attempted_at,
            ended_at: step.ended_at,
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
pub(crate) struct ShownAttempt<'a> {
    #[schema(value_type = schema::StepIdText)]
    step: StepId,
    /// The failures so far, this one included.
    attempt: u32,
    /// The fencing token it had.
    token: u64,
    #[schema(value_type = schema::OutcomeWord)]
    outcome: Outcome,
    #[schema(value_type = schema::MomentText)]
    started_at: Moment,
    /// How long it took, in microseconds.
    took_us: u64,
    /// Who made it.
    worker: &'a str,
    /// The class of the failure.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    /// What was said about it, cut and scrubbed.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// The wait before the next attempt, in microseconds, if there was to be one.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<u64>,
}

impl<'a> ShownAttempt<'a> {
    pub(crate) fn new(attempt: &'a AttemptRecord) -> Self {
        Self {
            step: attempt.step,
            attempt: attempt.attempt,
            token: attempt.token,
            outcome: attempt.outcome,
            started_at: attempt.started_at,
            took_us: micros(attempt.took),
            worker: &attempt.worker,
            class: attempt.class.as_deref(),
            message: attempt.message.as_deref(),
            delay_us: attempt.delay.map(micros),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
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
