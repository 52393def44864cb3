//! Submits, reads and awaits tasks.

use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;

use super::call::escaped;
use super::{Client, Error, NewTask, Task, TaskState};

/// The pauses between two polls of a task that has not finished.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The result of a submitted task.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TakenTask {
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
    pub async fn submit(&self, task: &NewTask) -> Result<TakenTask, Error> {
        if task.dedup.is_some() {
            return self.post("/v1/tasks", task).await;
        }
        // The client draws a key, so that a repeated call does not create two tasks.
        let keyed = task.clone().dedup(Uuid::now_v7().to_string());
        let taken: TakenTask = self.post("/v1/tasks", &keyed).await?;
        Ok(TakenTask { duplicate: false, ..taken })
    }

    /// Returns a task, if it exists.
    pub async fn task(&self, id: &str) -> Result<Option<Task>, Error> {
        match self.get(&format!("/v1/tasks/{}", escaped(id))).await {
            Ok(task) => Ok(Some(task)),
            Err(error) if error.is("no-such-task") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until a task has finished. Cancel-safe: dropping the future stops waiting and changes nothing.
    pub async fn wait(&self, id: &str) -> Result<Task, Error> {
        let mut pause = FIRST_PAUSE;
        loop {
            let Some(task) = self.task(id).await? else { return Err(Error::NoSuchTask(id.to_owned())) };
            if task.state != TaskState::Running {
                return Ok(task);
            }
            // The jitter spreads the polls of clients that wait for tasks submitted together.
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::Rng::new().f64())).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }
}
