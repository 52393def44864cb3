//! What a store must do.
//!
//! An engine keeps steps and changes them; it decides nothing about when to try again. Every change is one
//! transaction. Every exit from `running` names the lease it was claimed under, and changes nothing if that lease
//! is over. The clock is the store's own. One suite, `tests/it/conformance`, runs against every engine.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::filter::{Action, Filter, Page};
use crate::look::{Count, StepPage, TasksSeen};
use crate::node::{NodeRecord, NodeRow};
use crate::pulse::{Asked, Kept, PulseRow};
use crate::record::{QueueStats, TaskRecord};
use crate::version::VersionRecord;
use crate::{
    Error, Fingerprint, InvalidTask, Lane, Payload, Settings, SignalRecord, Signalled, StepId, StepState,
    TaskId,
};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A lane's number in the store.
pub(crate) type LaneId = i32;
/// A compiled policy's number in the store.
pub(crate) type PolicyNumber = i32;
/// A worker's number in the store.
pub(crate) type WorkerId = i32;

/// A step as it is submitted.
#[derive(Clone, Debug)]
pub(crate) struct NewStep {
    pub(crate) name: Option<String>,
    pub(crate) lane: LaneId,
    pub(crate) policy: PolicyNumber,
    pub(crate) destination: Option<String>,
    pub(crate) parents: i32,
    pub(crate) children: i32,
    pub(crate) delay: Duration,
    pub(crate) payload: Payload,
}

/// A task as it is submitted; its steps are numbered in order.
#[derive(Clone, Debug)]
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) namespace: String,
    pub(crate) dedup: Option<Dedup>,
    pub(crate) trace: Option<String>,
    pub(crate) steps: Vec<NewStep>,
    /// From parent to child.
    pub(crate) edges: Vec<(i32, i32)>,
}

/// A key under which a task is taken in once.
#[derive(Clone, Debug)]
pub(crate) struct Dedup {
    pub(crate) key: String,
    pub(crate) retention: Duration,
}

/// What a signal is known by, and for how long a failed task keeps another away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalKey<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) failed_for: Duration,
}

/// What became of a submitted task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Submitted {
    /// It was taken in.
    Created(TaskId),
    /// A task with the same deduplication key was taken in before; this is it.
    Duplicate(TaskId),
}

impl Submitted {
    /// The task that stands for the one submitted.
    pub const fn task(&self) -> TaskId {
        match self {
            Self::Created(task) | Self::Duplicate(task) => *task,
        }
    }
}

/// Which steps a worker can run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    /// No namespace named means all.
    pub(crate) namespaces: Vec<String>,
    /// No queue named means all.
    pub(crate) queues: Vec<String>,
    pub(crate) operations: Vec<String>,
    pub(crate) http: bool,
}

/// A step that a worker now has.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) step: StepId,
    pub(crate) lane: LaneId,
    pub(crate) policy: PolicyNumber,
    pub(crate) lease: i64,
    pub(crate) failures: i32,
    pub(crate) last_delay: Duration,
    /// Since the first attempt began, by the store's clock.
    pub(crate) elapsed: Duration,
    pub(crate) refreshed: bool,
    pub(crate) has_parents: bool,
    pub(crate) has_children: bool,
    pub(crate) trace: Option<String>,
    pub(crate) payload: Payload,
    /// Where the store keeps it, if that helps to find it again; it may have moved since.
    pub(crate) whereabouts: Option<Box<str>>,
    /// The host it calls.
    pub(crate) destination: Option<Box<str>>,
}

/// How a step leaves `running`.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) step: StepId,
    pub(crate) lease: i64,
    pub(crate) has_children: bool,
    pub(crate) took: Duration,
    /// As it was when the step was claimed.
    pub(crate) whereabouts: Option<Box<str>>,
    /// Which attempt it was; the first is 1.
    pub(crate) attempt: i32,
    pub(crate) destination: Option<Box<str>>,
    pub(crate) exit: Exit,
}

#[derive(Clone, Debug)]
pub(crate) enum Exit {
    Succeeded(Payload),
    /// The policy granted another try, or the credentials were refreshed.
    Retry {
        delay: Duration,
        refreshed: bool,
        why: Why,
    },
    /// It goes back without having failed.
    Requeued {
        delay: Duration,
        reason: Reason,
        message: String,
    },
    Failed(Why),
    Conflicted(Why),
}

impl Exit {
    /// How the attempt is recorded.
    pub(crate) const fn outcome(&self) -> Outcome {
        match self {
            Self::Succeeded(_) => Outcome::Succeeded,
            Self::Retry { .. } => Outcome::Retried,
            Self::Requeued { reason, .. } => reason.outcome(),
            Self::Failed(_) => Outcome::Failed,
            Self::Conflicted(_) => Outcome::Conflicted,
        }
    }
}

/// What is kept of a failed attempt.
#[derive(Clone, Debug)]
pub(crate) struct Why {
    pub(crate) class: &'static str,
    pub(crate) message: String,
}

/// Why a step came back without having failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Snoozed,
    Shutdown,
    Busy,
}

/// How an attempt ended, as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Outcome {
    /// It succeeded.
    Succeeded,
    /// It failed, and the policy granted another try.
    Retried,
    /// It failed, and the policy gave up.
    Failed,
    /// Somebody must decide.
    Conflicted,
    /// It did not want to run yet.
    Snoozed,
    /// Its worker was shut down.
    Shutdown,
    /// Its destination was at its limit, or down.
    Busy,
    /// Its worker vanished.
    Rescued,
}

impl Outcome {
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

    /// The word used in output, logs and metrics.
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

    /// The number the stores keep. A number is never given to another outcome.
    pub(crate) fn code(self) -> i16 {
        let place = Self::ALL.iter().position(|outcome| *outcome == self);
        place.and_then(|place| i16::try_from(place).ok()).unwrap_or(-1)
    }

    pub(crate) fn of_code(code: i16) -> Option<Self> {
        usize::try_from(code).ok().and_then(|place| Self::ALL.get(place)).copied()
    }
}

/// What became of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Receipt {
    /// It changed the step.
    Accepted,
    /// The same lease was reported before, with this outcome; nothing changed.
    Recorded(Outcome),
    /// The lease is over; nothing changed.
    Fenced,
}

/// A step that ended in `failed` or `conflicted`, for those who want to be told.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) step: StepId,
    pub(crate) lane: LaneId,
    pub(crate) state: StepState,
    pub(crate) attempts: i32,
    pub(crate) class: String,
    pub(crate) message: String,
}

/// Makes the tasks that tell somebody about steps that ended, in the same transaction.
pub(crate) type Tell<'a> = &'a (dyn Fn(&Ended) -> Option<NewTask> + Send + Sync);

/// What a rescue did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rescued {
    pub(crate) requeued: u64,
    pub(crate) failed: u64,
    /// The lane of each step, and whether it was given up.
    pub(crate) lanes: Vec<(LaneId, bool)>,
}

/// How a rescue treats what it finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RescueRule {
    pub(crate) max_rescues: u32,
    pub(crate) least_delay: Duration,
    pub(crate) limit: i64,
}

/// What is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PruneRule {
    pub(crate) keep: Duration,
    pub(crate) keep_failed: Duration,
    pub(crate) max_rows: u64,
    pub(crate) limit: i64,
}

/// The most workers forgotten at once.
pub(crate) const WORKERS_FORGOTTEN: i64 = 10_000;

/// How many lanes there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    pub(crate) in_all: u64,
    pub(crate) in_namespace: u64,
}

impl LaneLimits {
    /// For what the store itself needs.
    pub(crate) const NONE: Self = Self { in_all: u64::MAX, in_namespace: u64::MAX };

    pub(crate) const fn of(settings: &Settings) -> Self {
        Self { in_all: settings.max_lanes, in_namespace: settings.max_namespace_lanes }
    }

    /// Whether a lane may be made where there are so many.
    pub(crate) fn check(self, lane: &Lane, in_all: i64, in_namespace: i64) -> Result<()> {
        let is_full = |count: i64, limit| u64::try_from(count).unwrap_or(0) >= limit;
        let (limit, setting) = if is_full(in_namespace, self.in_namespace) {
            (self.in_namespace, "work.max_namespace_lanes")
        } else if is_full(in_all, self.in_all) {
            (self.in_all, "work.max_lanes")
        } else {
            return Ok(());
        };
        let Lane { namespace, queue, operation, .. } = lane;
        let lane = format!("namespace `{namespace}`, queue `{queue}`, operation `{operation}`").into();
        Err(InvalidTask::TooManyLanes { lane, limit, setting }.into())
    }
}

/// What can be paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Pausable {
    /// A queue, by name.
    Queue,
    /// An operation, by name.
    Operation,
}

/// A compiled policy on its way into the store.
#[derive(Clone, Debug)]
pub(crate) struct PolicyRow {
    pub(crate) name: String,
    pub(crate) hash: Vec<u8>,
    pub(crate) compiled: String,
}

/// A version of the policies on its way into the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewVersion<'a> {
    pub(crate) hash: &'a [u8],
    pub(crate) file: &'a str,
    pub(crate) by: &'a str,
}

/// When a version becomes the active one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activate {
    Always,
    /// If nobody has published it before.
    IfUnseen,
    /// If none is active.
    IfNone,
}

/// Keeps steps and changes them.
#[async_trait]
pub(crate) trait Store: Send + Sync + std::fmt::Debug {
    /// Brings the schema up to date; safe when many start at once, and when it was done before.
    async fn migrate(&self) -> Result<()>;

    /// The numbers of these policies, taking in those that are new.
    async fn publish(&self, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>>;

    /// The canonical text of a policy that somebody published.
    async fn policy(&self, number: PolicyNumber) -> Result<Option<String>>;

    /// Keeps a version of the policies, and makes it the active one if it should be; answers whether that replaced
    /// another.
    async fn activate(&self, version: &NewVersion<'_>, when: Activate) -> Result<bool>;

    /// Which version is active.
    async fn active(&self) -> Result<Option<Vec<u8>>>;

    /// A version as a policy file.
    async fn version_file(&self, hash: &[u8]) -> Result<Option<String>>;

    /// Versions, the one that was published last first.
    async fn versions(&self, limit: i64) -> Result<Vec<VersionRecord>>;

    /// Changes whenever another version may have become active. It may miss some: look again now and then.
    fn policies_told(&self) -> watch::Receiver<()>;

    /// The numbers of these lanes, making those that are new, within limits.
    async fn lanes(&self, lanes: &[Lane], limits: LaneLimits) -> Result<Vec<LaneId>>;

    /// Every lane there is.
    async fn all_lanes(&self) -> Result<Vec<(LaneId, Lane)>>;

    /// The number of the worker of this name; one for all who call themselves so.
    async fn register(&self, name: &str) -> Result<WorkerId>;

    /// A worker is still there. If it was forgotten meanwhile, it is known again by the same number.
    async fn seen(&self, worker: WorkerId, name: &str) -> Result<()>;

    /// Forgets workers that have not been seen for an hour and that nothing mentions; answers how many. What mentions
    /// them is looked through about once an hour, however often this is called.
    async fn forget_workers(&self) -> Result<u64>;

    /// Takes tasks in, all or none. `again` says that they may have been taken in by an earlier call whose
    /// answer was lost.
    async fn submit(&self, tasks: &[NewTask], again: bool) -> Result<Vec<Submitted>>;

    /// Takes a task in unless one that lives has its fingerprint; then counts that one up. A task that was taken in by
    /// an earlier call, whose answer was lost, is found again.
    async fn signal(&self, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled>;

    /// Counts up the living task with this fingerprint, if there is one.
    async fn signal_again(&self, key: &SignalKey<'_>) -> Result<Option<Signalled>>;

    /// The living task with this fingerprint, if there is one. Nothing is counted.
    async fn signal_task(&self, key: &SignalKey<'_>) -> Result<Option<TaskId>>;

    /// Gives at most `limit` due steps of one lane to a worker, most urgent first.
    async fn claim(
        &self,
        wants: &Wants,
        worker: WorkerId,
        limit: i64,
        lease: Duration,
    ) -> Result<Vec<Claimed>>;

    /// The outputs of these steps' parents: for each step, names and outputs.
    async fn inputs(&self, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>>;

    /// Makes the leases last for so long from now; answers which still hold.
    async fn renew(&self, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>>;

    /// Takes reports in, each for itself; a receipt for each.
    async fn finish(&self, reports: &[Report], tell: Tell<'_>) -> Result<Vec<Receipt>>;

    /// Takes steps back from workers that said nothing for a lease.
    async fn rescue(&self, rule: RescueRule, tell: Tell<'_>) -> Result<Rescued>;

    /// Forgets what need not be kept; answers how much. To be called until it is nothing.
    async fn prune(&self, rule: PruneRule) -> Result<u64>;

    /// Gives room back that pruning has freed, a little at a time.
    async fn compact(&self) -> Result<()>;

    /// A task with its steps, if it is known; payloads and outputs only if they are asked for.
    async fn task(&self, id: TaskId, with_payloads: bool) -> Result<Option<TaskRecord>>;

    /// Steps that match, newest first, among so many of the newest after the page before.
    async fn look(&self, filter: &Filter, page: &Page) -> Result<StepPage>;

    /// How many steps match, counted no further than this, among so many of the newest.
    async fn count(&self, filter: &Filter, most: u64) -> Result<Count>;

    /// At most so many tasks of which a step matches, newest first, before this one, among so many of the newest.
    async fn tasks(&self, filter: &Filter, before: Option<TaskId>, limit: u32) -> Result<TasksSeen>;

    /// Signals, those first that came last.
    async fn signals(&self, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>>;

    /// A step that is held under this lease, and for how long it has been; nothing if the lease is over. Payload and
    /// whereabouts are not read.
    async fn held(&self, step: StepId, lease: i64) -> Result<Option<(Claimed, Duration)>>;

    /// To how many steps something would be done.
    async fn affected(&self, filter: &Filter, action: &Action) -> Result<u64>;

    /// Does something to every step that matches, in one transaction; answers to how many.
    async fn act(&self, filter: &Filter, action: &Action) -> Result<u64>;

    /// Stops or resumes giving out the steps of a queue or an operation.
    async fn pause(&self, namespace: &str, what: Pausable, name: &str, paused: bool) -> Result<()>;

    /// How many steps are in which state, by queue and operation.
    async fn stats(&self, stale_after: Duration) -> Result<Vec<QueueStats>>;

    /// How old the oldest snapshot is that keeps dead rows from being removed.
    async fn oldest_snapshot(&self) -> Result<Duration>;

    /// Adds what a node has counted, and keeps what it says of itself.
    async fn beat(&self, rows: &[PulseRow], node: Option<&NodeRow>) -> Result<()>;

    /// Takes a node off the list.
    async fn leave(&self, node: uuid::Uuid) -> Result<()>;

    /// Forgets counts and nodes that are too old.
    async fn forget(&self) -> Result<()>;

    /// What nodes have counted.
    async fn pulse(&self, asked: &Asked<'_>) -> Result<Kept>;

    /// The nodes there are, those that live first.
    async fn nodes(&self) -> Result<Vec<NodeRecord>>;

    /// Changes whenever steps may have become due. It may miss some: look again now and then.
    fn wakes(&self) -> watch::Receiver<()>;
}
