//! Submission: validates tasks, checks the depth of their queues, and writes them in batches.
//!
//! A caller adds its tasks to a waiting line and waits for the result. If no writer is active, the caller starts one.
//! Submissions that arrive during a write form the next batch. So batches grow with the load, and without load no
//! caller waits for others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use holdoff_policy::{PolicySet, is_unprintable, nearest};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::{Shared, Work};
use crate::record::QueueStats;
use crate::store::{Dedup, LaneId, NewStep, NewTask, Result, Submitted};
use crate::task::graph;
use crate::with_retry::with_retry;
use crate::{Error, InvalidTask, Lane, Step, Task, TaskId, clock, notify};

const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const MAX_NAME_LENGTH: usize = 200;

/// Validated tasks, ready to be stored.
#[derive(Clone, Debug)]
pub struct PreparedTasks {
    pub(crate) tasks: Vec<NewTask>,
}

impl Work {
    /// Validates tasks and looks up the numbers needed to store them, so that they can be submitted inside a
    /// transaction of the caller's own: with [`postgres::submit_in`](crate::postgres::submit_in) or
    /// [`sqlite::submit_in`](crate::sqlite::submit_in).
    pub async fn prepare(&self, tasks: Vec<Task>) -> Result<PreparedTasks> {
        Ok(PreparedTasks { tasks: self.prepare_tasks(tasks).await? })
    }

    /// Validates tasks, and looks up the numbers of their lanes and policies.
    pub(crate) async fn prepare_tasks(&self, tasks: Vec<Task>) -> Result<Vec<NewTask>> {
        // All tasks use one version, even if another is deployed meanwhile.
        let version = self.shared.policies.current();
        for task in &tasks {
            self.check(task, &version.set)?;
        }
        self.check_depth(&tasks).await?;
        let Shared { store, names, call_policy, .. } = &*self.shared;
        let mut prepared = Vec::with_capacity(tasks.len());
        let mut policy_numbers = BTreeMap::new();
        for task in tasks {
            let graph = graph(&task.steps)?;
            let namespace = task.namespace.unwrap_or_else(|| PolicySet::DEFAULT_NAMESPACE.to_owned());
            let lanes: Vec<Lane> = task.steps.iter().map(|step| lane(&namespace, step)).collect();
            let lanes = with_retry(call_policy, |_| names.lane_ids(&**store, &lanes)).await?;
            let counts = graph.parents.iter().zip(&graph.children);
            let mut steps = Vec::with_capacity(task.steps.len());
            for ((step, lane), (parents, children)) in task.steps.into_iter().zip(lanes).zip(counts) {
                let policy = match &step.policy {
                    Some(named) => named.as_str(),
                    None => version.set.policy_for_step(&namespace, &step.operation).0,
                };
                let number = match policy_numbers.get(policy) {
                    Some(number) => *number,
                    None => version.number(&**store, policy).await?,
                };
                policy_numbers.insert(policy.to_owned(), number);
                steps.push(NewStep {
                    name: step.name,
                    lane,
                    policy: number,
                    destination: step.destination,
                    parents: *parents,
                    children: *children,
                    delay: step.delay,
                    expires_in: step.expires_in,
                    payload: step.payload,
                });
            }
            let retention = task.dedup_retention.unwrap_or(self.shared.settings.dedup_retention);
            let number = |place: &usize| i32::try_from(*place).unwrap_or(i32::MAX);
            prepared.push(NewTask {
                id: task.request_fingerprint.map_or_else(TaskId::fresh, TaskId::with_fingerprint),
                namespace,
                dedup: task.dedup.map(|key| Dedup { key, retention }),
                trace: task.trace,
                steps,
                edges: graph.edges.iter().map(|(parent, child)| (number(parent), number(child))).collect(),
            });
        }
        Ok(prepared)
    }

    fn check(&self, task: &Task, policies: &PolicySet) -> std::result::Result<(), InvalidTask> {
        let settings = &self.shared.settings;
        if task.steps.is_empty() {
            return Err(InvalidTask::NoSteps);
        }
        if task.steps.len() > settings.max_steps {
            return Err(InvalidTask::TooManySteps { count: task.steps.len(), limit: settings.max_steps });
        }
        let named =
            [("namespace", &task.namespace), ("deduplication key", &task.dedup), ("trace", &task.trace)];
        for (what, name) in named {
            name.as_deref().map_or(Ok(()), |name| check_name(what, name))?;
        }
        if let Some(namespace) = task.namespace.as_deref().filter(|name| *name == notify::NAMESPACE) {
            return Err(InvalidTask::Reserved { namespace: namespace.to_owned() });
        }
        if let Some(delay) = task.dedup_retention.filter(|delay| *delay > MAX_DELAY) {
            return Err(InvalidTask::TooLong { what: "the retention of the deduplication key", delay });
        }
        task.steps.iter().try_for_each(|step| self.check_step(step, policies))
    }

    fn check_step(&self, step: &Step, policies: &PolicySet) -> std::result::Result<(), InvalidTask> {
        if let Some(problem) = &step.problem {
            return Err(problem.clone());
        }
        check_name("operation", &step.operation)?;
        for (what, name) in [("step name", &step.name), ("queue", &step.queue)] {
            name.as_deref().map_or(Ok(()), |name| check_name(what, name))?;
        }
        let shown = || step.shown().to_owned();
        if step.priority > Step::LOWEST {
            return Err(InvalidTask::Priority { step: shown(), priority: step.priority });
        }
        let times = [
            ("the delay of a step", step.delay),
            ("the start-by time of a step", step.expires_in.unwrap_or_default()),
        ];
        if let Some((what, delay)) = times.into_iter().find(|(_, time)| *time > MAX_DELAY) {
            return Err(InvalidTask::TooLong { what, delay });
        }
        if let Some(expires_in) = step.expires_in.filter(|time| *time <= step.delay) {
            return Err(InvalidTask::ExpiresTooSoon { step: shown(), expires_in, delay: step.delay });
        }
        let limit = self.shared.settings.http.max_timeout;
        if let Some(timeout) = step.timeout.filter(|timeout| *timeout > limit) {
            return Err(InvalidTask::HttpTimeout { step: shown(), timeout, limit });
        }
        let (size, limit) = (step.payload.bytes.len(), self.shared.settings.max_payload);
        if size > limit {
            return Err(InvalidTask::PayloadTooLarge { step: shown(), size, limit });
        }
        match &step.policy {
            Some(policy) if policies.policy(policy).is_none() => {
                let nearest = nearest(policy, policies.policies().keys().map(String::as_str));
                let nearest = nearest.map(Box::from);
                Err(InvalidTask::NoSuchPolicy { step: shown(), policy: policy.clone(), nearest })
            }
            _ => Ok(()),
        }
    }

    /// Counts the accepted tasks.
    pub(crate) fn count_submitted(&self, tasks: &[NewTask], submitted: &[Submitted]) {
        let mut accepted = Vec::new();
        for (task, result) in tasks.iter().zip(submitted) {
            let is_new = matches!(result, Submitted::Created(_));
            let delayed =
                task.steps.iter().filter(|step| is_new && step.parents == 0 && !step.delay.is_zero());
            delayed.for_each(|step| self.shared.due.add(step.delay));
            for lane in task.steps.iter().filter_map(|step| self.shared.names.cached_lane(step.lane)) {
                if is_new {
                    lane.metrics.submitted();
                    self.shared.depth.add(&lane.lane.namespace, &lane.lane.queue);
                    accepted.push(lane);
                } else {
                    lane.metrics.duplicate();
                }
            }
        }
        self.shared.node_stats.submitted(accepted.iter().map(|lane| &lane.lane));
        self.start_stats_writer();
    }
}

fn check_name(what: &'static str, name: &str) -> std::result::Result<(), InvalidTask> {
    let length = name.chars().count();
    if (1..=MAX_NAME_LENGTH).contains(&length) && !name.chars().any(is_unprintable) {
        return Ok(());
    }
    Err(InvalidTask::BadName { what, name: name.chars().take(MAX_NAME_LENGTH).collect() })
}

fn lane(namespace: &str, step: &Step) -> Lane {
    Lane {
        namespace: namespace.to_owned(),
        queue: step.queue.clone().unwrap_or_else(|| Task::DEFAULT_QUEUE.to_owned()),
        operation: step.operation.clone(),
        kind: step.kind,
        priority: step.priority,
    }
}

/// A count older than this is renewed before a submission is refused.
const FRESH_FOR: Duration = Duration::from_secs(5);

/// The range of the `retry_after` hint, in milliseconds, over which refused callers are spread.
const RETRY_AFTER_MS: (u64, u64) = (2_000, 10_000);

#[derive(Debug, Default)]
pub(crate) struct QueueDepths(Mutex<DepthCounts>);

#[derive(Debug, Default)]
struct DepthCounts {
    queues: BTreeMap<(String, String), u64>,
    counted: Option<Duration>,
}

impl QueueDepths {
    fn counts(&self) -> MutexGuard<'_, DepthCounts> {
        self.0.lock()
    }

    pub(super) fn add(&self, namespace: &str, queue: &str) {
        let mut counts = self.counts();
        let key = (namespace.to_owned(), queue.to_owned());
        *counts.queues.entry(key).or_default() += 1;
    }

    pub(crate) fn update(&self, stats: &[QueueStats]) {
        let mut queues = BTreeMap::new();
        for lane in stats {
            let waiting = lane.blocked + lane.due + lane.waiting + lane.running;
            *queues.entry((lane.namespace.clone(), lane.queue.clone())).or_default() += waiting;
        }
        *self.counts() = DepthCounts { queues, counted: Some(clock::now()) };
    }

    fn of(&self, key: &(String, String)) -> u64 {
        self.counts().queues.get(key).copied().unwrap_or(0)
    }

    fn is_fresh(&self) -> bool {
        self.counts().counted.is_some_and(|counted| clock::now().saturating_sub(counted) < FRESH_FOR)
    }
}

fn add(wanted: &mut BTreeMap<(String, String), u64>, run: Option<((&str, &str), u64)>) {
    if let Some(((namespace, queue), count)) = run {
        *wanted.entry((namespace.to_owned(), queue.to_owned())).or_default() += count;
    }
}

impl Work {
    /// Refuses tasks whose queues are full.
    pub(super) async fn check_depth(&self, tasks: &[Task]) -> Result<()> {
        let limit = self.shared.settings.max_depth;
        let mut wanted: BTreeMap<(String, String), u64> = BTreeMap::new();
        let mut last: Option<((&str, &str), u64)> = None;
        for task in tasks {
            let namespace = task.namespace.as_deref().unwrap_or(PolicySet::DEFAULT_NAMESPACE);
            for step in &task.steps {
                let queue = step.queue.as_deref().unwrap_or(Task::DEFAULT_QUEUE);
                // The steps of a batch are mostly in the same queue: names are copied once for each run of them.
                match &mut last {
                    Some((key, count)) if *key == (namespace, queue) => *count += 1,
                    _ => add(&mut wanted, last.replace(((namespace, queue), 1))),
                }
            }
        }
        add(&mut wanted, last);
        let is_full = |(key, coming): &(&(String, String), &u64)| {
            self.shared.depth.of(key).saturating_add(**coming) > limit
        };
        if wanted.iter().any(|entry| is_full(&entry)) && !self.shared.depth.is_fresh() {
            let stats = self.count_now().await?;
            self.shared.depth.update(&stats);
        }
        let Some((key, _)) = wanted.iter().find(is_full) else { return Ok(()) };
        let (least, most) = RETRY_AFTER_MS;
        let wait = least + u64::from(clock::roll()) % (most - least);
        Err(Error::QueueFull {
            queue: key.1.clone(),
            depth: self.shared.depth.of(key),
            limit,
            retry_after: Duration::from_millis(wait),
        })
    }

    /// Stores the result of a count.
    pub(crate) fn update_depths(&self, stats: &[QueueStats]) {
        self.shared.depth.update(stats);
    }
}

/// A caller with more tasks than this has a batch already, and writes it alone.
const MAX_SHARED_TASKS: usize = 100;
/// The largest number of tasks in one transaction, not counting those of its last caller.
const MAX_BATCH_TASKS: usize = 1000;
/// The largest number of bytes in one transaction, not counting those of its last caller. Payloads are held in memory
/// several times while they are written.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// The largest number of waiting callers; further callers write alone.
const MAX_WAITING: usize = 10_000;

type SubmitResult = Result<Vec<Submitted>>;

/// A waiting caller.
#[derive(Debug)]
struct Caller {
    tasks: Vec<NewTask>,
    answer: oneshot::Sender<SubmitResult>,
}

impl Caller {
    fn bytes(&self) -> usize {
        self.tasks.iter().flat_map(|task| &task.steps).map(|step| step.payload.bytes.len()).sum()
    }
}

/// The callers that wait for their tasks to be stored.
#[derive(Debug, Default)]
pub(crate) struct SubmitBatcher(Mutex<WaitingCallers>);

#[derive(Debug, Default)]
struct WaitingCallers {
    callers: VecDeque<Caller>,
    is_writing: bool,
}

/// The way in which a caller's tasks are written.
enum BatchRole {
    /// The caller writes its own tasks.
    Alone(Caller),
    /// No writer is active; the caller starts one.
    First,
    Waits,
}

impl SubmitBatcher {
    fn enqueue(&self, caller: Caller) -> BatchRole {
        let mut waiting = self.waiting();
        let is_large = caller.tasks.len() > MAX_SHARED_TASKS || caller.bytes() > MAX_BATCH_BYTES;
        if is_large || waiting.callers.len() >= MAX_WAITING {
            return BatchRole::Alone(caller);
        }
        waiting.callers.push_back(caller);
        if std::mem::replace(&mut waiting.is_writing, true) { BatchRole::Waits } else { BatchRole::First }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingCallers> {
        self.0.lock()
    }
}

impl Work {
    /// Submits tasks, all or none, in a batch with those of other callers. If one caller's tasks are invalid, the
    /// others are not affected.
    pub(super) async fn submit_batched(&self, tasks: Vec<NewTask>) -> SubmitResult {
        let (answer, answered) = oneshot::channel();
        match self.shared.batcher.enqueue(Caller { tasks, answer }) {
            BatchRole::Alone(caller) => return self.submit_now(&caller.tasks, false).await,
            BatchRole::First => {
                drop(tokio::spawn(run_writer(BatchWriter { work: self.clone(), is_over: false })));
            }
            BatchRole::Waits => {}
        }
        answered.await.unwrap_or_else(|_| Err(runtime_ended()))
    }

    /// Submits tasks. `again` says that an earlier call may have reached the store.
    async fn submit_now(&self, tasks: &[NewTask], again: bool) -> SubmitResult {
        let Shared { store, call_policy, .. } = &*self.shared;
        let mut submitted = with_retry(call_policy, |repeated| store.submit(tasks, again || repeated)).await;
        if matches!(submitted, Err(Error::LaneRemoved)) {
            let renewed = self.with_renewed_lanes(tasks).await?;
            submitted = with_retry(call_policy, |_| store.submit(&renewed, true)).await;
        }
        let submitted = submitted?;
        self.count_submitted(tasks, &submitted);
        Ok(submitted)
    }

    /// Looks the lanes of these tasks up again, because one of them was removed.
    pub(crate) async fn with_renewed_lanes(&self, tasks: &[NewTask]) -> Result<Vec<NewTask>> {
        let Shared { store, names, call_policy, .. } = &*self.shared;
        let old = lane_numbers(tasks);
        let lanes = with_retry(call_policy, |_| names.forget_lanes(&**store, &old)).await?;
        let new = with_retry(call_policy, |_| names.lane_ids(&**store, &lanes)).await?;
        Ok(renumbered(tasks, old, new))
    }
}

pub(crate) fn lane_numbers(tasks: &[NewTask]) -> BTreeSet<LaneId> {
    tasks.iter().flat_map(|task| &task.steps).map(|step| step.lane).collect()
}

/// Returns the tasks with new numbers in place of the old numbers of their lanes.
pub(crate) fn renumbered(tasks: &[NewTask], old: BTreeSet<LaneId>, new: Vec<LaneId>) -> Vec<NewTask> {
    let numbers: BTreeMap<LaneId, LaneId> = old.into_iter().zip(new).collect();
    let mut tasks = tasks.to_vec();
    for step in tasks.iter_mut().flat_map(|task| &mut task.steps) {
        step.lane = numbers.get(&step.lane).copied().unwrap_or(step.lane);
    }
    tasks
}

/// The writer for all waiting callers. If it is dropped before the line is empty, its runtime is ending. It then fails
/// the waiting callers, because no other writer will serve them.
struct BatchWriter {
    work: Work,
    is_over: bool,
}

impl BatchWriter {
    /// Takes the next batch of callers. If there are none, the writer ends.
    fn next(&mut self) -> Vec<Caller> {
        let mut waiting = self.work.shared.batcher.waiting();
        let (mut next, mut tasks, mut bytes) = (Vec::new(), 0, 0);
        while tasks < MAX_BATCH_TASKS
            && bytes < MAX_BATCH_BYTES
            && let Some(caller) = waiting.callers.pop_front()
        {
            // The tasks of a caller that has dropped its future are not written.
            if !caller.answer.is_closed() {
                tasks += caller.tasks.len();
                bytes += caller.bytes();
                next.push(caller);
            }
        }
        waiting.is_writing = !next.is_empty();
        self.is_over = next.is_empty();
        next
    }
}

impl Drop for BatchWriter {
    fn drop(&mut self) {
        if !self.is_over {
            let mut waiting = self.work.shared.batcher.waiting();
            waiting.is_writing = false;
            waiting.callers.clear();
        }
    }
}

async fn run_writer(mut writer: BatchWriter) {
    loop {
        let callers = writer.next();
        if callers.is_empty() {
            return;
        }
        flush(&writer.work, callers).await;
    }
}

async fn flush(work: &Work, callers: Vec<Caller>) {
    let mut tasks = Vec::with_capacity(callers.len());
    let mut shares = Vec::with_capacity(callers.len());
    for Caller { tasks: own, answer } in callers {
        shares.push((own.len(), answer));
        tasks.extend(own);
    }
    match work.submit_now(&tasks, false).await {
        Ok(submitted) => {
            let mut submitted = submitted.into_iter();
            for (count, answer) in shares {
                // The send fails if the caller has dropped its future.
                let _ = answer.send(Ok(submitted.by_ref().take(count).collect()));
            }
        }
        Err(error) if error.is_transient() || shares.len() == 1 => {
            for (_, answer) in shares {
                let _ = answer.send(Err(copy_of(&error)));
            }
        }
        // Some tasks cannot be stored. Each caller's tasks are written separately, so that only their own caller gets
        // the error.
        Err(_) => {
            let mut tasks = tasks.as_slice();
            let mut store_error = None;
            for (count, answer) in shares {
                let (own, rest) = tasks.split_at(count.min(tasks.len()));
                tasks = rest;
                if answer.is_closed() {
                    continue;
                }
                // After a transient error of the store, the remaining callers get the same error without a further
                // call.
                let written = match &store_error {
                    Some(error) => Err(copy_of(error)),
                    None => work.submit_now(own, true).await,
                };
                store_error = store_error
                    .or_else(|| Some(copy_of(written.as_ref().err().filter(|why| why.is_transient())?)));
                let _ = answer.send(written);
            }
        }
    }
}

/// Returns a copy of an error, for each of several callers.
fn copy_of(error: &Error) -> Error {
    match error {
        Error::Store { transient, source } => {
            Error::Store { transient: *transient, source: source.to_string().into() }
        }
        other => Error::NotPossible(other.to_string()),
    }
}

fn runtime_ended() -> Error {
    let why = "the runtime ended during the submission; it is unknown whether the tasks were stored";
    Error::Store { transient: true, source: why.into() }
}

#[cfg(feature = "sqlite")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NewStep;
    use crate::{Payload, TaskId};

    fn caller(bytes: usize) -> (Caller, oneshot::Receiver<SubmitResult>) {
        let step = NewStep {
            name: None,
            lane: 1,
            policy: 1,
            destination: None,
            parents: 0,
            children: 0,
            delay: std::time::Duration::ZERO,
            expires_in: None,
            payload: Payload { format: crate::Format::Bytes, bytes: vec![0; bytes].into() },
        };
        let namespace = "default".to_owned();
        let (id, steps) = (TaskId::fresh(), vec![step]);
        let task = NewTask { id, namespace, dedup: None, trace: None, steps, edges: Vec::new() };
        let (answer, answered) = oneshot::channel();
        (Caller { tasks: vec![task], answer }, answered)
    }

    /// Payloads are held in memory several times while they are written, so few large ones cost as much as many small
    /// ones.
    #[tokio::test]
    async fn a_batch_is_limited_by_bytes() {
        let work = Work::open("sqlite::memory:", holdoff_policy::PolicySet::default()).await.unwrap();
        let intake = &work.shared.batcher;
        let (huge, _answered) = caller(MAX_BATCH_BYTES + 1);
        assert!(
            matches!(intake.enqueue(huge), BatchRole::Alone(_)),
            "a task above the batch limit is a batch of its own"
        );
        let (callers, waiting): (Vec<_>, Vec<_>) = (0..5).map(|_| caller(MAX_BATCH_BYTES / 2)).unzip();
        for (number, caller) in callers.into_iter().enumerate() {
            let is_first = matches!(intake.enqueue(caller), BatchRole::First);
            assert_eq!(is_first, number == 0);
        }
        let mut writer = BatchWriter { work: work.clone(), is_over: false };
        let batches: Vec<usize> = (0..4).map(|_| writer.next().len()).collect();
        assert_eq!(batches, [2, 2, 1, 0], "no more than {MAX_BATCH_BYTES} bytes at once");
        drop(waiting);
    }
}
