//! The entry point to durable work.

mod queue_stats;
mod submit;

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Policy, PolicySet};
use tokio::sync::watch;

pub use submit::PreparedTasks;
#[cfg(feature = "sqlite")]
pub(crate) use submit::{lane_numbers, renumbered};

use crate::due::DueTimes;
use crate::names::NameCache;
use crate::pull::ClaimQueues;
use crate::query::{Action, PageRequest, StepCount, StepFilter, StepPage};
use crate::record::{StepRecord, TaskPage, TaskRecord};
use crate::signal::SignalRecord;
use crate::stats::{NodeRecord, NodeStats, Resolution, StatsQuery, StatsWindow};
use crate::store::{LaneLimits, Pausable, PruneRule, Pruned, Result, Store, Submitted};
use crate::version::ActivePolicies;
use crate::with_retry::{UPKEEP_TIMEOUT, for_callers, for_reports, migrate, with_retry, within};
use crate::worker::WorkerBuilder;
use crate::{Error, InvalidTask, PolicyError, Settings, Task, TaskId, TaskState, engine, metrics};

/// The interval at which a waiting caller polls the store.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// The number of tasks examined for a page that is filtered by state.
const MAX_SKIPPED: u32 = 1000;

/// The largest number of steps deleted in one transaction.
const PRUNE_BATCH: i64 = 1000;

/// Durable work in one store. Cheap to clone; all clones share connections.
///
/// ```
/// use holdoff_policy::PolicySet;
/// use holdoff_work::{Context, Fault, Task, Work};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), holdoff_work::Error> {
/// let work = Work::open("sqlite::memory:", PolicySet::default()).await?;
/// let worker = work
///     .worker()
///     .handle("greet", |_: Context, name: String| async move { Ok::<_, Fault>(format!("Hello, {name}!")) })
///     .start()
///     .await?;
///
/// let task = work.submit(Task::new("greet").json("Ada")).await?.task();
/// let done = work.wait(task).await?;
/// let greeting: String = done.steps[0].output.as_ref().unwrap().read().unwrap();
/// assert_eq!(greeting, "Hello, Ada!");
/// worker.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Work {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) policies: ActivePolicies,
    pub(crate) settings: Settings,
    pub(crate) names: NameCache,
    pub(crate) due: DueTimes,
    pub(crate) claim_queues: ClaimQueues,
    pub(crate) call_policy: Policy,
    pub(crate) report_policy: Policy,
    depth: submit::QueueDepths,
    batcher: submit::SubmitBatcher,
    pub(crate) node_stats: NodeStats,
    queue_stats: queue_stats::StatsCache,
}

impl Work {
    /// Opens the store at `sqlite:FILE`, `sqlite::memory:` or `postgres://…`, migrates its schema, and deploys these
    /// policies: they become the active version under the same conditions as with [`join`](Self::join). Any number of
    /// nodes may do so at once.
    ///
    /// This node uses its own policies, whichever version is active on the store. Nodes that share their policies use
    /// `join` instead.
    pub async fn open(url: &str, policies: PolicySet) -> Result<Self> {
        Self::open_with(url, policies, Settings::default()).await
    }

    /// Opens the store like [`open`](Self::open), with settings.
    pub async fn open_with(url: &str, policies: PolicySet, settings: Settings) -> Result<Self> {
        settings.check_policies(&policies).map_err(PolicyError::from)?;
        let work = Self::attach(url, policies, settings).await?;
        work.deploy_if_new("a program").await?;
        Ok(work)
    }

    /// Opens the store without deploying policies, for programs that read and operate, but do not submit steps under
    /// policies of their own. Creates the schema in an empty store, and migrates an earlier schema, like
    /// [`open`](Self::open).
    pub async fn attach(url: &str, policies: PolicySet, settings: Settings) -> Result<Self> {
        let call_policy = for_callers();
        let store = with_retry(&call_policy, |_| Box::pin(engine::open(url))).await?;
        migrate(&*store).await?;
        let shared = Shared {
            store,
            policies: ActivePolicies::new(policies),
            names: NameCache::with_limits(LaneLimits::of(&settings)),
            settings,
            due: DueTimes::default(),
            claim_queues: ClaimQueues::default(),
            call_policy,
            report_policy: for_reports(),
            depth: submit::QueueDepths::default(),
            batcher: submit::SubmitBatcher::default(),
            node_stats: NodeStats::default(),
            queue_stats: queue_stats::StatsCache::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Submits a task. When this returns, the task is durable. Tasks that are submitted concurrently share a
    /// transaction.
    ///
    /// If the future is dropped, the task may or may not be stored.
    pub async fn submit(&self, task: Task) -> Result<Submitted> {
        let submitted = self.submit_all(vec![task]).await?;
        submitted.into_iter().next().ok_or_else(|| Error::NotPossible("no task was submitted".to_owned()))
    }

    /// Submits tasks, all or none. The highest rate is reached with thousands of tasks in one call.
    ///
    /// If the future is dropped, the tasks may or may not be stored.
    pub async fn submit_all(&self, tasks: Vec<Task>) -> Result<Vec<Submitted>> {
        let prepared = self.prepare_tasks(tasks).await?;
        self.submit_batched(prepared).await
    }

    /// Returns a builder for a worker.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self.clone())
    }
}

/// Bounded queries of steps, signals, recent activity and nodes.
impl Work {
    /// Returns matching steps, newest first. A call reads a bounded number of the newest steps, and returns the
    /// position to continue from. A page may be short, and even empty, before the end. Cancel-safe.
    pub async fn scan(&self, filter: &StepFilter, page: &PageRequest) -> Result<StepPage> {
        with_retry(&self.shared.call_policy, |_| self.shared.store.scan(filter, page)).await
    }

    /// Returns matching steps, newest first. The page is full, however many steps must be read for it, unless there are
    /// no more matches. Cancel-safe.
    pub async fn list(&self, filter: &StepFilter, page: &PageRequest) -> Result<Vec<StepRecord>> {
        let mut steps = Vec::new();
        let mut page = page.clone();
        loop {
            let seen = self.scan(filter, &page).await?;
            page.limit = page.limit.saturating_sub(u32::try_from(seen.steps.len()).unwrap_or(u32::MAX));
            steps.extend(seen.steps);
            match seen.next {
                Some(next) if page.limit > 0 => page.after = Some(next),
                _ => return Ok(steps),
            }
        }
    }

    /// Returns the number of matching steps, up to `most`. Like [`scan`](Self::scan), it reads a bounded number of the
    /// newest steps. Cancel-safe.
    pub async fn count(&self, filter: &StepFilter, most: u64) -> Result<StepCount> {
        with_retry(&self.shared.call_policy, |_| self.shared.store.count_steps(filter, most)).await
    }

    /// Returns at most `limit` live and recent signals, the most recent first. Cancel-safe.
    pub async fn signals(&self, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>> {
        let limit = limit.clamp(1, PageRequest::MAX_LIMIT);
        with_retry(&self.shared.call_policy, |_| self.shared.store.list_signals(namespace, limit)).await
    }

    /// Returns the recent activity within this window, at most a day, over all nodes. The nodes' counts are a few
    /// seconds old. Buckets cover five seconds, or a minute if the window exceeds a quarter of an hour. The other
    /// counts cover whole minutes, or quarters of an hour. Cancel-safe.
    pub async fn recent_stats(&self, namespace: Option<&str>, window: Duration) -> Result<StatsWindow> {
        let level = Resolution::covering(window);
        let query = StatsQuery { namespace, resolution: level, window: window.min(level.retention) };
        let rows = with_retry(&self.shared.call_policy, |_| self.shared.store.recent_stats(&query)).await?;
        Ok(StatsWindow::of(&query, rows))
    }

    /// Returns the processes that run workers or joined the store as daemons, live ones first. Cancel-safe.
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        with_retry(&self.shared.call_policy, |_| self.shared.store.nodes()).await
    }
}

/// The queries and actions of operators.
impl Work {
    /// Returns a task with its steps, attempts, payloads and outputs. Cancel-safe.
    pub async fn task(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        with_retry(&self.shared.call_policy, |_| self.shared.store.task(id, true)).await
    }

    /// Returns a task without payloads and outputs, which may be large. Cancel-safe.
    pub async fn task_outline(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        with_retry(&self.shared.call_policy, |_| self.shared.store.task(id, false)).await
    }

    /// Waits until no step of the task is ready or running, and returns the task. Cancel-safe.
    pub async fn wait(&self, id: TaskId) -> Result<TaskRecord> {
        let unknown = || Error::NotPossible(format!("task {id} does not exist"));
        while self.task_outline(id).await?.ok_or_else(unknown)?.state == TaskState::Running {
            tokio::time::sleep(POLL_EVERY).await;
        }
        self.task(id).await?.ok_or_else(unknown)
    }

    /// Returns tasks with a matching step, newest first: a page of at most `limit`, beginning before `before`. Tasks in
    /// another state than `state` are skipped. The number of examined tasks is bounded, so a page may be short before
    /// the end. Cancel-safe.
    pub async fn tasks(
        &self,
        filter: &StepFilter,
        state: Option<TaskState>,
        before: Option<TaskId>,
        limit: u32,
    ) -> Result<TaskPage> {
        let wanted = limit.clamp(1, PageRequest::MAX_LIMIT);
        // If most tasks are skipped, small pages would need many queries.
        let scan_limit = if state.is_some() { MAX_SKIPPED } else { wanted };
        let seen = with_retry(&self.shared.call_policy, |_| {
            self.shared.store.scan_tasks(filter, before, scan_limit)
        })
        .await?;
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
    pub async fn affected(&self, filter: &StepFilter, action: &Action) -> Result<u64> {
        with_retry(&self.shared.call_policy, |_| self.shared.store.affected(filter, action)).await
    }

    /// Applies the action to every matching step in one transaction, and returns their number. If the future is
    /// dropped, the transaction may or may not be committed.
    pub async fn act(&self, filter: &StepFilter, action: &Action) -> Result<u64> {
        let size = match action {
            Action::Resolve(Some(payload)) => payload.bytes.len(),
            _ => 0,
        };
        let limit = self.shared.settings.max_payload;
        if size > limit {
            return Err(InvalidTask::PayloadTooLarge { step: "resolved".to_owned(), size, limit }.into());
        }
        let count = with_retry(&self.shared.call_policy, |_| self.shared.store.act(filter, action)).await?;
        tracing::info!(action = action.name(), count, "applied an operator action");
        Ok(count)
    }

    /// Deletes the steps that [`HistorySettings`](crate::HistorySettings) does not keep, and returns their number. Once an
    /// hour it also removes the lanes that have no steps left. Workers do this periodically. If the future is dropped, some of these steps may remain.
    pub async fn prune(&self) -> Result<u64> {
        let history = self.shared.settings.history;
        let rule = PruneRule {
            keep: history.keep,
            keep_failed: history.keep_failed,
            max_rows: history.max_rows,
            limit: PRUNE_BATCH,
        };
        let mut pruned = 0;
        loop {
            let gone = within(UPKEEP_TIMEOUT, self.shared.store.prune(rule)).await?;
            metrics::pruned(gone.steps);
            pruned += gone.steps;
            if gone == Pruned::default() {
                break;
            }
            // Lets other tasks run first.
            tokio::task::yield_now().await;
        }
        within(UPKEEP_TIMEOUT, self.shared.store.prune_workers()).await?;
        if self.shared.names.is_search_due() {
            within(UPKEEP_TIMEOUT, self.shared.store.prune_lanes()).await?;
            self.shared.names.load_lanes(&*self.shared.store).await?;
        }
        if pruned > 0 {
            within(UPKEEP_TIMEOUT, self.shared.store.compact()).await?;
        }
        Ok(pruned)
    }

    /// Stops claims of the steps of a queue or an operation. Running steps continue. If the future is dropped, the
    /// change may or may not be made.
    pub async fn pause(&self, namespace: &str, what: Pausable, name: &str) -> Result<()> {
        with_retry(&self.shared.call_policy, |_| self.shared.store.pause(namespace, what, name, true)).await
    }

    /// Resumes claims of the steps of a queue or an operation. If the future is dropped, the change may or may not be
    /// made.
    pub async fn resume(&self, namespace: &str, what: Pausable, name: &str) -> Result<()> {
        with_retry(&self.shared.call_policy, |_| self.shared.store.pause(namespace, what, name, false)).await
    }
}

/// Receives a notification when steps may have become due. Notifications may be missed, so the receiver also polls.
#[derive(Debug)]
pub struct Wakes(watch::Receiver<()>);

impl Work {
    /// Wakes the workers of all nodes. Call it after the commit of a transaction with `submit_in` or `complete_in`;
    /// otherwise the workers find the steps by polling. It does not wait.
    pub fn wake(&self) {
        self.shared.store.wake();
    }

    /// Subscribes to notifications that steps may have become due, on whichever node of the store.
    pub fn wakes(&self) -> Wakes {
        Wakes(self.shared.store.wakes())
    }
}

impl Wakes {
    /// Waits for the next notification.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
