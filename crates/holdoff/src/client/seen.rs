//! Tasks as the daemon reports them.

use serde::Deserialize;
use serde_json::Value;

/// A task and its steps. Fields of a newer daemon are ignored.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// The id.
    pub id: String,
    /// The state, derived from the steps.
    pub state: TaskState,
    /// The steps, by number.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// The id.
    pub id: String,
    /// The name in a graph.
    #[serde(default)]
    pub name: Option<String>,
    /// The state.
    pub state: StepState,
    /// The operation.
    pub operation: String,
    /// The queue.
    pub queue: String,
    /// The number of failures.
    pub failures: u32,
    /// The class of the last failure.
    #[serde(default)]
    pub class: Option<String>,
    /// The message of the last failure.
    #[serde(default)]
    pub message: Option<String>,
    /// The output, if it is JSON.
    #[serde(default)]
    pub output: Option<Value>,
}

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TaskState {
    /// At least one step is live.
    Running,
    /// All steps succeeded.
    Succeeded,
    /// A step failed, and no operator has resolved it.
    Failed,
    /// The task was cancelled.
    Cancelled,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The state of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StepState {
    /// The step waits for other steps.
    Blocked,
    /// The step is due, or waits until it is.
    Ready,
    /// A worker has claimed the step.
    Running,
    /// The step succeeded.
    Succeeded,
    /// The policy gave up.
    Failed,
    /// The step waits for an operator's decision.
    Conflicted,
    /// An operator discarded the step.
    Discarded,
    /// The step was cancelled.
    Cancelled,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}
