//! Tasks as the daemon shows them.

use serde::Deserialize;
use serde_json::Value;

/// A task and its steps. What a newer daemon says besides is passed over.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// Its id.
    pub id: String,
    /// What its steps say.
    pub state: TaskState,
    /// Its steps, by number.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// Its id.
    pub id: String,
    /// Its name in a graph.
    #[serde(default)]
    pub name: Option<String>,
    /// What it is doing.
    pub state: StepState,
    /// Its operation.
    pub operation: String,
    /// Its queue.
    pub queue: String,
    /// How often it has failed.
    pub failures: u32,
    /// The class of its last failure.
    #[serde(default)]
    pub class: Option<String>,
    /// What was said about its last failure.
    #[serde(default)]
    pub message: Option<String>,
    /// What came out of it, if that is JSON.
    #[serde(default)]
    pub output: Option<Value>,
}

/// What a task is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TaskState {
    /// A step lives.
    Running,
    /// All steps succeeded.
    Succeeded,
    /// A step failed, and nobody has dealt with it.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Something that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What a step is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StepState {
    /// It waits for other steps.
    Blocked,
    /// It is due, or waits until it is.
    Ready,
    /// Somebody has it.
    Running,
    /// It is done.
    Succeeded,
    /// The policy gave up.
    Failed,
    /// Somebody must decide.
    Conflicted,
    /// Somebody decided against it.
    Discarded,
    /// It was cancelled.
    Cancelled,
    /// Something that this version does not know.
    #[serde(other)]
    Unknown,
}
