//! Tasks as the daemon reports them, and the calls that submit, read and await them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::call::escaped;
use super::{Client, Error, NewTask};

/// The pauses between two polls of a task that has not finished.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The result of a submitted task.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct AcceptedTask {
    /// The id of the task.
    pub id: String,
    /// The state; `None` if the daemon has deleted the task but still remembers its key.
    #[serde(default)]
    pub state: Option<TaskState>,
    /// Whether the daemon had already accepted a task under the same key.
    #[serde(default)]
    pub duplicate: bool,
}

impl Client {
    /// Submits a task. When this returns, the task is durable.
    pub async fn submit(&self, task: &NewTask) -> Result<AcceptedTask, Error> {
        if task.dedup.is_some() {
            return self.post("/v1/tasks", task).await;
        }
        // The client draws a key, so that a repeated call does not create two tasks.
        let keyed = task.clone().dedup(Uuid::now_v7().to_string());
        let accepted: AcceptedTask = self.post("/v1/tasks", &keyed).await?;
        Ok(AcceptedTask { duplicate: false, ..accepted })
    }

    /// Returns a task with its outputs, if it exists.
    pub async fn task(&self, id: &str) -> Result<Option<Task>, Error> {
        self.read(id, "?payloads=true").await
    }

    async fn read(&self, id: &str, query: &str) -> Result<Option<Task>, Error> {
        match self.get(&format!("/v1/tasks/{}{query}", escaped(id))).await {
            Ok(task) => Ok(Some(task)),
            Err(error) if error.is("no-such-task") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until a task has finished. Cancel-safe: dropping the future stops waiting and changes nothing.
    pub async fn wait(&self, id: &str) -> Result<Task, Error> {
        let mut pause = FIRST_PAUSE;
        loop {
            let unknown = || Error::NoSuchTask(id.to_owned());
            if self.read(id, "").await?.ok_or_else(unknown)?.state != TaskState::Running {
                return self.task(id).await?.ok_or_else(unknown);
            }
            // The jitter spreads the polls of clients that wait for tasks submitted together.
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::Rng::new().f64())).await;
            pause = (pause * 3 / 2).min(MAX_PAUSE);
        }
    }
}

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
    /// The reason why the step failed finally: `permanent`, `exhausted`, `deadline`, `retry_after_too_long` or
    /// `too_many_rescues`.
    #[serde(default)]
    pub reason: Option<String>,
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
