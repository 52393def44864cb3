//! The queries and actions of operators.

use std::time::Duration;

use super::Work;
use crate::filter::{Action, Filter, Page};
use crate::patience::patiently;
use crate::record::{TaskPage, TaskRecord};
use crate::store::{Pausable, PruneRule, Result};
use crate::{Error, TaskId, TaskState, metrics};

/// The interval at which a waiting caller polls the store.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The number of tasks examined for a page that is filtered by state.
const MOST_PASSED_OVER: u32 = 1000;

/// The largest number of steps deleted in one transaction.
const FORGOTTEN_AT_ONCE: i64 = 1000;

impl Work {
    /// Returns a task with its steps, attempts, payloads and outputs. Cancel-safe.
    pub async fn task(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        patiently(&self.shared.callers, |_| self.shared.store.task(id, true)).await
    }

    /// Returns a task without payloads and outputs, which may be large. Cancel-safe.
    pub async fn task_outline(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        patiently(&self.shared.callers, |_| self.shared.store.task(id, false)).await
    }

    /// Waits until no step of the task is ready or running, and returns the task. Cancel-safe.
    pub async fn wait(&self, id: TaskId) -> Result<TaskRecord> {
        let unknown = || Error::NotPossible(format!("there is no task {id}"));
        while self.task_outline(id).await?.ok_or_else(unknown)?.state == TaskState::Running {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.task(id).await?.ok_or_else(unknown)
    }

    /// Returns tasks with a matching step, newest first: a page of at most `limit`, beginning before `before`. Tasks in
    /// another state than `state` are skipped. The number of examined tasks is bounded, so a page may be short before
    /// the end. Cancel-safe.
    pub async fn tasks(
        &self,
        filter: &Filter,
        state: Option<TaskState>,
        before: Option<TaskId>,
        limit: u32,
    ) -> Result<TaskPage> {
        let wanted = limit.clamp(1, Page::MOST);
        // If most tasks are skipped, small pages would need many queries.
        let looked_at = if state.is_some() { MOST_PASSED_OVER } else { wanted };
        let seen =
            patiently(&self.shared.callers, |_| self.shared.store.tasks(filter, before, looked_at)).await?;
        let mut page = TaskPage { tasks: Vec::new(), next: before };
        for task in seen.tasks {
            if page.tasks.len() >= wanted as usize {
                return Ok(page);
            }
            page.next = Some(task.id);
            if state.is_none_or(|state| state == task.state) {
                page.tasks.push(task);
            }
        }
        page.next = seen.next;
        Ok(page)
    }

    /// Returns the number of steps that [`act`](Self::act) would change now. Cancel-safe.
    pub async fn affected(&self, filter: &Filter, action: &Action) -> Result<u64> {
        patiently(&self.shared.callers, |_| self.shared.store.affected(filter, action)).await
    }

    /// Applies the action to every matching step in one transaction, and returns their number. If the future is
    /// dropped, the transaction may or may not be committed.
    pub async fn act(&self, filter: &Filter, action: &Action) -> Result<u64> {
        let size = match action {
            Action::Resolve(Some(payload)) => payload.bytes.len(),
            _ => 0,
        };
        let limit = self.shared.settings.max_payload;
        if size > limit {
            return Err(crate::InvalidTask::PayloadTooLarge {
                step: "to be resolved".to_owned(),
                size,
                limit,
            }
            .into());
        }
        let count = patiently(&self.shared.callers, |_| self.shared.store.act(filter, action)).await?;
        tracing::info!(action = action.name(), count, "an operator has acted");
        Ok(count)
    }

    /// Deletes the steps that [`History`](crate::History) does not keep, and returns their number. Workers do this
    /// periodically. If the future is dropped, some of these steps may remain.
    pub async fn prune(&self) -> Result<u64> {
        let history = self.shared.settings.history;
        let rule = PruneRule {
            keep: history.keep,
            keep_failed: history.keep_failed,
            max_rows: history.max_rows,
            limit: FORGOTTEN_AT_ONCE,
        };
        let mut forgotten = 0;
        loop {
            let count = self.shared.store.prune(rule).await?;
            metrics::pruned(count);
            forgotten += count;
            if count == 0 {
                break;
            }
            // Lets other tasks run first.
            tokio::task::yield_now().await;
        }
        self.shared.store.forget_workers().await?;
        if forgotten > 0 {
            self.shared.store.compact().await?;
        }
        Ok(forgotten)
    }

    /// Stops claims of the steps of a queue or an operation. Running steps continue. If the future is dropped, the
    /// change may or may not be made.
    pub async fn pause(&self, namespace: &str, what: Pausable, name: &str) -> Result<()> {
        patiently(&self.shared.callers, |_| self.shared.store.pause(namespace, what, name, true)).await
    }

    /// Resumes claims of the steps of a queue or an operation. If the future is dropped, the change may or may not be
    /// made.
    pub async fn resume(&self, namespace: &str, what: Pausable, name: &str) -> Result<()> {
        patiently(&self.shared.callers, |_| self.shared.store.pause(namespace, what, name, false)).await
    }
}
