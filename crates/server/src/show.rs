//! Tasks and locks as they are shown in JSON.

mod lock;

pub use lock::{ShownHolder, ShownLock, show_lock};
pub(crate) use lock::{seconds, show_holder};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdoff_work::{AttemptRecord, Format, Moment, Payload, StepRecord, TaskId, TaskRecord, TaskState};
use serde::Serialize;
use serde_json::value::RawValue;

/// A task as it is shown in JSON: the record, with outputs, and with payloads if they are wanted.
#[derive(Debug, Serialize)]
pub struct ShownTask<'a> {
    id: TaskId,
    state: TaskState,
    now: Moment,
    steps: Vec<ShownStep<'a>>,
    attempts: &'a [AttemptRecord],
}

#[derive(Debug, Serialize)]
struct ShownStep<'a> {
    #[serde(flatten)]
    step: &'a StepRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

/// Shows a task. JSON stays as it was written; bytes are in base64, under a name that says so.
pub fn show(record: &TaskRecord, payloads: bool) -> ShownTask<'_> {
    let step = |step| shown_step(step, payloads);
    ShownTask {
        id: record.id,
        state: record.state,
        now: record.now,
        steps: record.steps.iter().map(step).collect(),
        attempts: &record.attempts,
    }
}

fn shown_step(step: &StepRecord, payloads: bool) -> ShownStep<'_> {
    let (payload, payload_base64) = shown(step.payload.as_ref().filter(|_| payloads));
    let (output, output_base64) = shown(step.output.as_ref());
    ShownStep { step, payload, payload_base64, output, output_base64 }
}

fn shown(payload: Option<&Payload>) -> (Option<&RawValue>, Option<String>) {
    let Some(payload) = payload.filter(|payload| payload.format() != Format::Empty) else {
        return (None, None);
    };
    let bytes = payload.as_bytes();
    match serde_json::from_slice(bytes) {
        Ok(json) if payload.format() == Format::Json => (Some(json), None),
        _ => (None, Some(STANDARD.encode(bytes))),
    }
}
