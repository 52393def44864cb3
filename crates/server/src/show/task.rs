//! The JSON representation of a task.

use holdoff_work::{Moment, TaskId, TaskRecord, TaskState};
use serde::Serialize;
use utoipa::ToSchema;

use super::{ShownAttempt, ShownStep};
use crate::schema;

/// A task with its steps and their attempts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub struct ShownTask<'a> {
    #[schema(value_type = schema::TaskIdText)]
    id: TaskId,
    #[schema(value_type = schema::TaskStateWord)]
    state: TaskState,
    /// The store's clock when this was read.
    #[schema(value_type = schema::MomentText)]
    now: Moment,
    /// Its steps by number.
    steps: Vec<ShownStep<'a>>,
    /// Attempts that did not succeed, of all steps, the oldest first.
    attempts: Vec<ShownAttempt<'a>>,
}

/// Returns the representation of a task. A JSON payload stays as it was written. Other bytes are in base64, under
/// another name.
pub fn show(record: &TaskRecord, payloads: bool) -> ShownTask<'_> {
    ShownTask {
        id: record.id,
        state: record.state,
        now: record.now,
        steps: record.steps.iter().map(|step| ShownStep::new(step, payloads)).collect(),
        attempts: record.attempts.iter().map(ShownAttempt::new).collect(),
    }
}
