//! Tasks: sent, looked at, waited for.

use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;

use super::call::escaped;
use super::{Client, Error, NewTask, Task, TaskState};

/// Pauses between two looks at a task that is not over.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What became of a task that was sent.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TakenTask {
    /// The task that stands for it.
    pub id: String,
    /// What it is doing; unknown of a task that is forgotten, and its key is not.
    #[serde(default)]
    pub state: Option<TaskState>,
    /// Whether it was taken in before, under the same key.
    #[serde(default)]
    pub duplicate: bool,
}

impl Client {
    /// Sends a task. When this returns, it is durable.
    pub async fn submit(&self, task: &NewTask) -> Result<TakenTask, Error> {
        if task.dedup.is_some() {
            return self.post("/v1/tasks", task).await;
        }
        // Under a key of its own, so that a repeated call does not make two of it.
        let keyed = task.clone().dedup(Uuid::now_v7().to_string());
        let taken: TakenTask = self.post("/v1/tasks", &keyed).await?;
        Ok(TakenTask { duplicate: false, ..taken })
    }

    /// A task, if it is known.
    pub async fn task(&self, id: &str) -> Result<Option<Task>, Error> {
        match self.get(&format!("/v1/tasks/{}", escaped(id))).await {
            Ok(task) => Ok(Some(task)),
            Err(error) if error.is("no-such-task") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until a task is over. Dropping the future stops waiting, and changes nothing.
    pub async fn wait(&self, id: &str) -> Result<Task, Error> {
        let mut pause = FIRST_PAUSE;
        loop {
            let Some(task) = self.task(id).await? else { return Err(Error::NoSuchTask(id.to_owned())) };
            if task.state != TaskState::Running {
                return Ok(task);
            }
            // Those who wait for tasks that were sent together do not look together.
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::Rng::new().f64())).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }
}
