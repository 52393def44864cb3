//! The interface of a store.
//!
//! An engine stores steps and changes them; it does not decide when to retry. Every change is one transaction. Every
//! exit from `running` names the lease number of its claim, and changes nothing if the step runs under another. The
//! clock is the store's own. One suite, `tests/it/conformance`, runs against every engine.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use holdoff_policy::Class;
use tokio::sync::watch;

use crate::query::{Action, PageRequest, ScannedTasks, StepCount, StepFilter, StepPage};
use crate::record::{DelaySource, FailureReason, QueueStats, TaskRecord};
use crate::stats::{NodeRecord, NodeReport, StatsQuery, StatsRow, StatsRows};
use crate::version::VersionRecord;
use crate::{
    Error, Fingerprint, InvalidTask, Lane, Payload, Settings, SignalRecord, Signalled, StepId, StepState,
    TaskId,
};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The number of a lane in the store.
pub(crate) type LaneId = i32;
/// The number of a compiled policy in the store.
pub(crate) type PolicyNumber = i32;
/// The number of a worker in the store.
pub(crate) type WorkerId = i32;

/// A step to submit.
#[derive(Clone, Debug)]
pub(crate) struct NewStep {
    pub(crate) name: Option<String>,
    pub(crate) lane: LaneId,
    pub(crate) policy: PolicyNumber,
    pub(crate) destination: Option<String>,
    pub(crate) parents: i32,
    pub(crate) children: i32,
    pub(crate) delay: Duration,
    /// The time from the submission after which no attempt begins.
    pub(crate) expires_in: Option<Duration>,
    pub(crate) payload: Payload,
}

/// A task to submit; its steps are numbered in order.
#[derive(Clone, Debug)]
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) namespace: String,
    pub(crate) dedup: Option<Dedup>,
    pub(crate) trace: Option<String>,
    pub(crate) steps: Vec<NewStep>,
    /// Pairs of parent and child.
    pub(crate) edges: Vec<(i32, i32)>,
}

/// A deduplication key, under which only one task is accepted during the retention.
#[derive(Clone, Debug)]
pub(crate) struct Dedup {
    pub(crate) key: String,
    pub(crate) retention: Duration,
}

/// The key of a signal, and how long a failed task suppresses further signals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalKey<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) failed_for: Duration,
}

/// The result of a submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Submitted {
    /// The task was accepted.
    Created(TaskId),
    /// A task with the same deduplication key was accepted before; this is its id.
    Duplicate(TaskId),
}

impl Submitted {
    /// Returns the task that was accepted, now or before.
    pub const fn task(&self) -> TaskId {
        match self {
            Self::Created(task) | Self::Duplicate(task) => *task,
        }
    }
}

/// The steps that a worker can run.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Selection {
    /// An empty list means all namespaces.
    pub(crate) namespaces: Vec<String>,
    /// An empty list means all queues.
    pub(crate) queues: Vec<String>,
    pub(crate) operations: Vec<String>,
    pub(crate) http: bool,
}

/// A claimed step.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRow {
    pub(crate) step: StepId,
    pub(crate) lane: LaneId,
    pub(crate) policy: PolicyNumber,
    pub(crate) lease: i64,
    pub(crate) failures: i32,
    pub(crate) last_delay: Duration,
    /// The time since the first attempt began, by the store's clock.
    pub(crate) elapsed: Duration,
    pub(crate) refreshed: bool,
    pub(crate) has_parents: bool,
    pub(crate) has_children: bool,
    pub(crate) trace: Option<String>,
    pub(crate) payload: Payload,
    /// The position of the row in the store, if that helps to find it again; the row may have moved since.
    pub(crate) ctid_hint: Option<Box<str>>,
    /// The host that the step calls.
    pub(crate) destination: Option<Box<str>>,
}

/// The report of a step's exit from `running`.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) step: StepId,
    pub(crate) lease: i64,
    pub(crate) has_children: bool,
    pub(crate) took: Duration,
    /// The position of the row at the time of the claim.
    pub(crate) ctid_hint: Option<Box<str>>,
    /// The number of the attempt; the first is 1.
    pub(crate) attempt: i32,
    pub(crate) destination: Option<Box<str>>,
    /// The task's `traceparent`; only failures need it.
    pub(crate) trace: Option<Box<str>>,
    pub(crate) exit: Exit,
}

/// The exit of a step from `running`.
#[derive(Clone, Debug)]
pub(crate) enum Exit {
    Succeeded(StepOutput),
    /// The policy granted another attempt, or the credentials were refreshed.
    Retry {
        delay: Duration,
        source: DelaySource,
        refreshed: bool,
        why: FailureText,
    },
    /// The step is requeued without a failure.
    Requeued {
        delay: Duration,
        reason: RequeueReason,
        message: String,
    },
    Failed(FailureText, FailureReason),
    Conflicted(FailureText),
}

impl Exit {
    /// Returns the outcome under which the attempt is recorded.
    pub(crate) const fn outcome(&self) -> AttemptOutcome {
        match self {
            Self::Succeeded(_) => AttemptOutcome::Succeeded,
            Self::Retry { .. } => AttemptOutcome::Retried,
            Self::Requeued { reason, .. } => reason.outcome(),
            Self::Failed(..) => AttemptOutcome::Failed,
            Self::Conflicted(_) => AttemptOutcome::Conflicted,
        }
    }

    /// Returns the state of the step after the exit.
    pub(crate) const fn state(&self) -> StepState {
        match self {
            Self::Succeeded(_) => StepState::Succeeded,
            Self::Retry { .. } | Self::Requeued { .. } => StepState::Ready,
            Self::Failed(..) => StepState::Failed,
            Self::Conflicted(_) => StepState::Conflicted,
        }
    }

    /// Returns the wait before the next run, or `None` if there is none.
    pub(crate) const fn delay(&self) -> Option<Duration> {
        match self {
            Self::Retry { delay, .. } | Self::Requeued { delay, .. } => Some(*delay),
            Self::Succeeded(_) | Self::Failed(..) | Self::Conflicted(_) => None,
        }
    }

    /// Returns whether the exit counts as a failure.
    pub(crate) const fn is_failure(&self) -> bool {
        matches!(self, Self::Retry { .. } | Self::Failed(..) | Self::Conflicted(_))
    }

    /// Returns whether the credentials were refreshed for the next attempt.
    pub(crate) const fn is_refreshed(&self) -> bool {
        matches!(self, Self::Retry { refreshed: true, .. })
    }

    /// Returns the failure, or `None` if the exit is not a failure.
    pub(crate) const fn failure(&self) -> Option<&FailureText> {
        match self {
            Self::Retry { why, .. } | Self::Failed(why, _) | Self::Conflicted(why) => Some(why),
            Self::Succeeded(_) | Self::Requeued { .. } => None,
        }
    }

    /// Returns the class of the failure, or `None` if the exit is not a failure.
    pub(crate) fn class(&self) -> Option<&'static str> {
        self.failure().map(|why| why.class)
    }

    /// Returns the wait that the other side asked for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.failure().and_then(|why| why.retry_after)
    }

    /// Returns the reason of a final failure.
    pub(crate) const fn reason(&self) -> Option<FailureReason> {
        if let Self::Failed(_, reason) = self { Some(*reason) } else { None }
    }

    /// Returns the word for the reason why there is no further attempt, or `None` if there is one or none is needed.
    pub(crate) const fn stop_reason(&self) -> Option<&'static str> {
        match self {
            Self::Failed(_, reason) => Some(reason.name()),
            Self::Conflicted(_) => Some("conflict"),
            Self::Succeeded(_) | Self::Retry { .. } | Self::Requeued { .. } => None,
        }
    }

    /// Returns what determined the wait of a retry.
    pub(crate) const fn delay_source(&self) -> Option<DelaySource> {
        if let Self::Retry { source, .. } = self { Some(*source) } else { None }
    }

    /// Returns the recorded message; for a success, the note on its output.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Retry { why, .. } | Self::Failed(why, _) | Self::Conflicted(why) => &why.message,
            Self::Requeued { message, .. } => message,
            Self::Succeeded(output) => &output.note,
        }
    }
}

/// The output of a step that succeeded.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepOutput {
    pub(crate) payload: Payload,
    /// Says what is missing in the payload, because it exceeded a limit; empty if nothing is.
    pub(crate) note: String,
}

impl StepOutput {
    /// Returns the output, or nothing and a note if the payload exceeds `limit` bytes. The step has succeeded, so its
    /// output is no reason to fail it or to run it again.
    pub(crate) fn within(self, limit: usize) -> Self {
        let size = self.payload.bytes.len();
        if size <= limit { self } else { Self::dropped(size as u64, limit) }
    }

    /// Returns no output, and a note that one of `size` bytes was dropped.
    pub(crate) fn dropped(size: u64, limit: usize) -> Self {
        let note = format!("the output of {size} bytes was dropped: the limit is {limit} (work.max_output)");
        Self { payload: Payload::empty(), note }
    }

    /// Returns a whole output.
    pub(crate) const fn whole(payload: Payload) -> Self {
        Self { payload, note: String::new() }
    }

    /// Whether nothing is to be stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.payload.bytes.is_empty() && self.note.is_empty()
    }
}

/// What is recorded of a failed attempt: its class, its message, and the wait that the other side asked for.
#[derive(Clone, Debug)]
pub(crate) struct FailureText {
    pub(crate) class: &'static str,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
}

impl FailureText {
    /// Creates the text of a failure without a wished wait.
    pub(crate) const fn new(class: Class, message: String) -> Self {
        Self { class: class.name(), message, retry_after: None }
    }
}

/// The reason for a requeue without a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequeueReason {
    Snoozed,
    Shutdown,
    Busy,
}

impl RequeueReason {
    const fn outcome(self) -> AttemptOutcome {
        match self {
            Self::Snoozed => AttemptOutcome::Snoozed,
            Self::Shutdown => AttemptOutcome::Shutdown,
            Self::Busy => AttemptOutcome::Busy,
        }
    }
}

/// The recorded outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The attempt succeeded.
    Succeeded,
    /// The attempt failed, and the policy granted another.
    Retried,
    /// The attempt failed, and the policy granted no other.
    Failed,
    /// The attempt ended in a conflict; an operator must decide.
    Conflicted,
    /// The handler asked to run later.
    Snoozed,
    /// The worker was shut down.
    Shutdown,
    /// The destination was at a limit, or its breaker was open.
    Busy,
    /// The worker was lost.
    Rescued,
}

impl AttemptOutcome {
    /// Every outcome.
    pub const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::Retried,
        Self::Failed,
        Self::Conflicted,
        Self::Snoozed,
        Self::Shutdown,
        Self::Busy,
        Self::Rescued,
    ];

    /// Returns the name used in output, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Retried => "retried",
            Self::Failed => "failed",
            Self::Conflicted => "conflicted",
            Self::Snoozed => "snoozed",
            Self::Shutdown => "shutdown",
            Self::Busy => "busy",
            Self::Rescued => "rescued",
        }
    }

    /// Returns the number that the stores keep. A number is never reused for another outcome.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Succeeded => 0,
            Self::Retried => 1,
            Self::Failed => 2,
            Self::Conflicted => 3,
            Self::Snoozed => 4,
            Self::Shutdown => 5,
            Self::Busy => 6,
            Self::Rescued => 7,
        }
    }

    /// Returns the outcome with this number.
    pub(crate) fn of_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.code() == code)
    }
}

/// The store's answer to a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Receipt {
    /// The report changed the step.
    Accepted,
    /// The same lease was reported before, with this outcome. Nothing changed.
    Recorded(AttemptOutcome),
    /// The step does not run under this lease number, for example after a rescue. Nothing changed.
    Fenced,
}

/// The result of processing reports.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// A receipt for each report.
    pub(crate) receipts: Vec<Receipt>,
    /// The delays of the children that the reports have made ready, if they are due later.
    pub(crate) delays: BTreeSet<Duration>,
}

/// A step that ended as `failed` or `conflicted`, for notifications.
#[derive(Clone, Debug)]
pub(crate) struct EndedStep {
    pub(crate) step: StepId,
    pub(crate) lane: LaneId,
    pub(crate) state: StepState,
    pub(crate) attempts: i32,
    pub(crate) class: String,
    pub(crate) message: String,
}

/// Creates the notification task for a step that ended, to be stored in the same transaction.
pub(crate) type NotifyFn<'a> = &'a (dyn Fn(&EndedStep) -> Option<NewTask> + Send + Sync);

/// The result of a rescue, or of an expiry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rescued {
    pub(crate) requeued: u64,
    pub(crate) failed: u64,
    pub(crate) steps: Vec<RescuedStep>,
}

/// A step that was rescued, and whether it failed finally.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RescuedStep {
    pub(crate) step: StepId,
    pub(crate) lane: LaneId,
    pub(crate) has_failed: bool,
    pub(crate) failures: i32,
    pub(crate) trace: Option<String>,
}

/// The limits of a rescue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RescueRule {
    pub(crate) max_rescues: u32,
    pub(crate) least_delay: Duration,
    pub(crate) limit: i64,
}

/// The retention rules of pruning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PruneRule {
    pub(crate) keep: Duration,
    pub(crate) keep_failed: Duration,
    pub(crate) max_rows: u64,
    pub(crate) limit: i64,
}

/// The numbers of rows that one call has pruned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pruned {
    pub(crate) steps: u64,
    /// Deduplication keys and signals.
    pub(crate) keys: u64,
}

/// The largest number of workers that are pruned at once.
pub(crate) const MAX_PRUNED_WORKERS: i64 = 10_000;

/// The limits on the number of lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    pub(crate) in_all: u64,
    pub(crate) in_namespace: u64,
}

impl LaneLimits {
    /// No limits, for lanes that holdoff itself needs.
    pub(crate) const NONE: Self = Self { in_all: u64::MAX, in_namespace: u64::MAX };

    pub(crate) const fn of(settings: &Settings) -> Self {
        Self { in_all: settings.max_lanes, in_namespace: settings.max_namespace_lanes }
    }

    /// Returns an error if these numbers of lanes leave no room for another.
    pub(crate) fn check(self, lane: &Lane, in_all: i64, in_namespace: i64) -> Result<()> {
        let is_full = |count: i64, limit| u64::try_from(count).unwrap_or(0) >= limit;
        let (limit, setting) = if is_full(in_namespace, self.in_namespace) {
            (self.in_namespace, "work.max_namespace_lanes")
        } else if is_full(in_all, self.in_all) {
            (self.in_all, "work.max_lanes")
        } else {
            return Ok(());
        };
        let Lane { namespace, queue, operation, priority, .. } = lane;
        let lane =
            format!("namespace `{namespace}`, queue `{queue}`, operation `{operation}`, priority {priority}")
                .into();
        Err(InvalidTask::TooManyLanes { lane, limit, setting }.into())
    }
}

/// The kinds of things that can be paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Pausable {
    /// A queue, by name.
    Queue,
    /// An operation, by name.
    Operation,
}

impl Pausable {
    /// Returns the number that the stores keep. A number is never reused for another kind.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Queue => 0,
            Self::Operation => 1,
        }
    }
}

/// A compiled policy to store.
#[derive(Clone, Debug)]
pub(crate) struct PolicyRow {
    pub(crate) name: String,
    pub(crate) hash: Vec<u8>,
    pub(crate) compiled: String,
}

/// A version of the policies to store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewVersion<'a> {
    pub(crate) hash: &'a [u8],
    pub(crate) file: &'a str,
    pub(crate) by: &'a str,
}

/// The condition under which a version becomes active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activate {
    Always,
    /// If the store has never had it.
    IfUnseen,
    /// If none is active.
    IfNone,
}

impl Activate {
    /// Returns whether a version becomes active, given whether it is new, whether it is active already, and whether
    /// another version is active.
    pub(crate) const fn applies(self, is_new: bool, is_active: bool, has_other: bool) -> bool {
        match self {
            Self::Always => has_other || !is_active,
            Self::IfUnseen => is_new || !(has_other || is_active),
            Self::IfNone => !(has_other || is_active),
        }
    }
}

/// A store: the sum of its four parts.
pub(crate) trait Store: QueueStore + AdminStore + StatsStore + PolicyStore {}

impl<S: QueueStore + AdminStore + StatsStore + PolicyStore> Store for S {}

/// Accepts tasks, hands their steps to workers, and processes the workers' reports.
#[async_trait]
pub(crate) trait QueueStore: Send + Sync + std::fmt::Debug {
    /// Returns the numbers of these lanes, and creates new ones within the limits.
    async fn lane_ids(&self, lanes: &[Lane], limits: LaneLimits) -> Result<Vec<LaneId>>;

    /// Returns all lanes.
    async fn all_lanes(&self) -> Result<Vec<(LaneId, Lane)>>;

    /// Returns the number of the worker of this name. All workers of the same name share it.
    async fn register_worker(&self, name: &str) -> Result<WorkerId>;

    /// Records that a worker is running. If the worker was removed meanwhile, it is stored again under the same number.
    async fn touch_worker(&self, worker: WorkerId, name: &str) -> Result<()>;

    /// Submits tasks, all or none. `again` says that an earlier call, whose response was lost, may have submitted them.
    async fn submit(&self, tasks: &[NewTask], again: bool) -> Result<Vec<Submitted>>;

    /// Submits a task, unless a live task has its fingerprint; then counts an occurrence of that one. A task that an
    /// earlier call submitted, whose response was lost, is found again.
    async fn signal(&self, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled>;

    /// Counts an occurrence of the live task with this fingerprint, if there is one.
    async fn signal_again(&self, key: &SignalKey<'_>) -> Result<Option<Signalled>>;

    /// Returns the live task with this fingerprint, if there is one. Counts nothing.
    async fn signal_task(&self, key: &SignalKey<'_>) -> Result<Option<TaskId>>;

    /// Claims at most `limit` due steps of one lane for a worker, most urgent first.
    async fn claim(
        &self,
        selection: &Selection,
        worker: WorkerId,
        limit: i64,
        lease: Duration,
    ) -> Result<Vec<ClaimRow>>;

    /// Returns the number of bytes in the outputs of the parents of these steps.
    async fn input_sizes(&self, steps: &[StepId]) -> Result<Vec<(StepId, u64)>>;

    /// Returns the outputs of the parents of these steps: step, name of the parent, output.
    async fn inputs(&self, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>>;

    /// Extends the leases to `lease` from now. Returns for each whether it is still valid.
    async fn renew(&self, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>>;

    /// Returns a step that is held under this lease, and the time since its claim; `None` if the lease is no longer
    /// valid. The payload and the position of the row are not read.
    async fn held_step(&self, step: StepId, lease: i64) -> Result<Option<(ClaimRow, Duration)>>;

    /// Processes reports, each independently.
    async fn finish(&self, reports: &[Report], notify: NotifyFn<'_>) -> Result<Finished>;

    /// Rescues steps whose leases have expired.
    async fn rescue(&self, rule: RescueRule, notify: NotifyFn<'_>) -> Result<Rescued>;

    /// Fails at most `limit` ready steps whose start-by time has passed.
    async fn expire(&self, limit: i64, notify: NotifyFn<'_>) -> Result<Rescued>;

    /// Signals that steps may have become due. Signals may be missed, so the receiver also polls.
    fn wakes(&self) -> watch::Receiver<()>;

    /// Wakes the workers of all nodes, because steps may have become due. It does not wait.
    fn wake(&self);
}

/// Serves operators: queries of tasks and steps, actions on them, and the upkeep of the tables.
#[async_trait]
pub(crate) trait AdminStore: Send + Sync + std::fmt::Debug {
    /// Migrates the schema. Safe to call repeatedly, and from many nodes at once.
    async fn migrate(&self) -> Result<()>;

    /// Returns a task with its steps, if it exists; payloads and outputs only if requested.
    async fn task(&self, id: TaskId, with_payloads: bool) -> Result<Option<TaskRecord>>;

    /// Returns matching steps, newest first, among a bounded number of the newest steps after the previous page.
    async fn scan(&self, filter: &StepFilter, page: &PageRequest) -> Result<StepPage>;

    /// Returns the number of matching steps, up to `most`, among a bounded number of the newest steps.
    async fn count_steps(&self, filter: &StepFilter, most: u64) -> Result<StepCount>;

    /// Returns at most `limit` tasks with a matching step, newest first, before this one, among a bounded number of the
    /// newest steps.
    async fn scan_tasks(
        &self,
        filter: &StepFilter,
        before: Option<TaskId>,
        limit: u32,
    ) -> Result<ScannedTasks>;

    /// Returns signals, the most recent first.
    async fn list_signals(&self, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>>;

    /// Returns the number of steps that the action would change.
    async fn affected(&self, filter: &StepFilter, action: &Action) -> Result<u64>;

    /// Applies the action to every matching step in one transaction. Returns their number.
    async fn act(&self, filter: &StepFilter, action: &Action) -> Result<u64>;

    /// Pauses or resumes claims of the steps of a queue or an operation.
    async fn pause(&self, namespace: &str, what: Pausable, name: &str, paused: bool) -> Result<()>;

    /// Deletes history beyond the retention. Callers repeat it until it deletes nothing.
    async fn prune(&self, rule: PruneRule) -> Result<Pruned>;

    /// Removes workers that have not reported for an hour and that no step or attempt mentions. Returns their number.
    /// However often this is called, the steps and attempts are searched about once an hour.
    async fn prune_workers(&self) -> Result<u64>;

    /// Retires the lanes without steps and history, and deletes those that have been retired for an hour. Returns the
    /// number of deleted lanes. It reads all steps.
    ///
    /// A submission does not use the number of a retired lane, which it may have cached, but looks the lane up again, and
    /// so takes it back into use. The hour is for transactions that began before the lane was retired.
    async fn prune_lanes(&self) -> Result<u64>;

    /// Returns space that pruning has freed, in small portions.
    async fn compact(&self) -> Result<()>;
}

/// Counts steps by state, and keeps the recent activity and the list of nodes.
#[async_trait]
pub(crate) trait StatsStore: Send + Sync + std::fmt::Debug {
    /// Returns the numbers of steps by state, for each queue and operation.
    async fn queue_stats(&self, stale_after: Duration) -> Result<Vec<QueueStats>>;

    /// Returns the age of the oldest snapshot, which prevents the removal of dead rows.
    async fn oldest_snapshot(&self) -> Result<Duration>;

    /// Adds the counts of a node, and stores its report about itself.
    async fn add_stats(&self, rows: &[StatsRow], node: Option<&NodeReport>) -> Result<()>;

    /// Removes a node from the list.
    async fn remove_node(&self, node: uuid::Uuid) -> Result<()>;

    /// Deletes counts and nodes that are too old.
    async fn prune_stats(&self) -> Result<()>;

    /// Returns the counts of recent activity.
    async fn recent_stats(&self, query: &StatsQuery<'_>) -> Result<StatsRows>;

    /// Returns the nodes, live ones first.
    async fn nodes(&self) -> Result<Vec<NodeRecord>>;
}

/// Keeps compiled policies, and the versions of the policies.
#[async_trait]
pub(crate) trait PolicyStore: Send + Sync + std::fmt::Debug {
    /// Returns the numbers of these policies, and stores new ones.
    async fn store_policies(&self, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>>;

    /// Returns the canonical text of a stored policy.
    async fn policy(&self, number: PolicyNumber) -> Result<Option<String>>;

    /// Stores a version of the policies, and activates it if the condition holds. Returns whether it replaced another
    /// active version.
    async fn activate_version(&self, version: &NewVersion<'_>, when: Activate) -> Result<bool>;

    /// Returns the hash of the active version.
    async fn active_version(&self) -> Result<Option<Vec<u8>>>;

    /// Returns a version as a policy file.
    async fn version_file(&self, hash: &[u8]) -> Result<Option<String>>;

    /// Returns versions, the last deployed first.
    async fn versions(&self, limit: i64) -> Result<Vec<VersionRecord>>;

    /// Signals that another version may have become active. Signals may be missed, so the receiver also polls.
    fn policy_changes(&self) -> watch::Receiver<()>;
}
