//! What operators ask and do.

use std::time::Duration;

use super::Work;
use crate::filter::{Action, Filter, Page};
use crate::patience::patiently;
use crate::record::{TaskPage, TaskRecord};
use crate::store::{Pausable, PruneRule, Result};
use crate::{Error, TaskId, TaskState, metrics};

/// How often a waiting caller looks, at most.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How many tasks in other states are looked at for a page of them.
const MOST_PASSED_OVER: u32 = 1000;

/// The most steps forgotten in one transaction.
const FORGOTTEN_AT_ONCE: i64 = 1000;

impl Work {
    /// A task with its steps, attempts, payloads and outputs.
    pub async fn task(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        patiently(&self.shared.callers, |_| self.shared.store.task(id, true)).await
    }

    /// The same without payloads and outputs, which may be large.
    pub async fn task_outline(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        patiently(&self.shared.callers, |_| self.shared.store.task(id, false)).await
    }

    /// Waits until nothing of the task will run any more.
    pub async fn wait(&self, id: TaskId) -> Result<TaskRecord> {
        let unknown = || Error::NotPossible(format!("there is no task {id}"));
        while self.task_outline(id).await?.ok_or_else(unknown)?.state == TaskState::Running {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.task(id).await?.ok_or_else(unknown)
    }

    /// Tasks of which a step matches, newest first: a page of at most `limit`, beginning before `before`. Those in
    /// another state than `state` are passed over, and so many of them at once that a page may be short before the end.
    pub async fn tasks(
        &self,
        filter: &Filter,
        state: Option<TaskState>,
        before: Option<TaskId>,
        limit: u32,
    ) -> Result<TaskPage> {
        let wanted = limit.clamp(1, Page::MOST);
        // When most are passed over, looking at few at a time would take many looks.
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

    /// To how many steps [`act`](Self::act) would do something now.
    pub async fn affected(&self, filter: &Filter, action: &Action) -> Result<u64> {
        patiently(&self.shared.callers, |_| self.shared.store.affected(filter, action)).await
    }

    /// Does something to every step that matches, in one transaction; answers to how many.
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

    /// Forgets now what [`History`](crate::History) does not keep; answers how many steps that were. Workers do so
    /// by themselves.
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
            // Whoever works goes first.
            tokio::task::yield_now().await;
        }
        self.shared.store.forget_workers().await?;
        if forgotten > 0 {
            self.shared.store.compact().await?;
        }
        Ok(forgotten)
    }

    /// Stops giving out the steps of a queue or an operation. What runs goes on.
    pub async fn pause(&self, namespace: &str, what: Pausable, name: &str) -> Result<()> {
        patiently(&self.shared.callers, |_| self.shared.store.pause(namespace, what, name, true)).await
    }

    /// Gives the steps of a queue or an operation out again.
    pub async fn resume(&self, namespace: &str, what: Pausable, name: &str) -> Result<()> {
        patiently(&self.shared.callers, |_| self.shared.store.pause(namespace, what, name, false)).await
    }
}
