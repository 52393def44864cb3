//! The observed state, and its difference from an earlier one.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_work::{PageRequest, StepFilter, StepId, StepRecord, StepState};
use serde::Serialize;

use super::Events;
use crate::acceptor::LocalAcceptor;
use crate::api::QueueView;
use crate::app::App;
use crate::ledgers::{Ledgers, Node};
use crate::problem::Problem;

/// The number of the newest steps that a poll reads, and of the newest failed or conflicted ones.
const MAX_STEPS: u32 = 200;
/// The number of held locks that a poll reads.
const MAX_LOCKS: u32 = 1000;

/// The timeout for reading locks.
const LOCKS_TIMEOUT: Duration = Duration::from_secs(1);

/// Locks, by namespace and digest.
type ByDigest = BTreeMap<(String, String), ChangedLock>;

/// The state that one poll observed.
pub(super) struct Snapshot {
    steps: BTreeMap<StepId, ChangedStep>,
    queues: BTreeMap<(String, String, String), QueueView>,
    locks: ByDigest,
    acceptor: Option<ChangedAcceptor>,
    ledgers: BTreeMap<String, ChangedLedger>,
}

/// A step that changed.
#[derive(Clone, PartialEq, Eq, Serialize)]
struct ChangedStep {
    id: StepId,
    state: StepState,
    namespace: String,
    queue: String,
    operation: String,
    failures: u32,
}

/// An acceptor that answered requests, or that stopped.
#[derive(Clone, PartialEq, Eq, Serialize)]
struct ChangedAcceptor {
    requests: u64,
    connections: usize,
    stopped: bool,
}

/// A ledger that has new entries or another leader.
#[derive(Clone, PartialEq, Eq, Serialize)]
struct ChangedLedger {
    namespace: String,
    index: u64,
    leader: Option<String>,
}

/// A lock that was granted or released.
#[derive(Clone, PartialEq, Eq, Serialize)]
struct ChangedLock {
    namespace: String,
    key: String,
    digest: String,
    token: holdoff_lock::Token,
    held: bool,
}

impl Snapshot {
    /// Reads the newest state of everything. Locks may be in another store than the rest: if they cannot be read, they
    /// count as unchanged.
    pub(super) async fn read(app: &App, before: Option<&Self>) -> Result<Self, Problem> {
        let newest = app.work.list(&StepFilter::default(), &PageRequest::first(MAX_STEPS)).await?;
        let stuck = StepFilter::states([StepState::Failed, StepState::Conflicted]);
        let stuck = app.work.list(&stuck, &PageRequest::first(MAX_STEPS)).await?;
        let queues = app.work.stats().await?;
        let unchanged = || before.map(|before| before.locks.clone()).unwrap_or_default();
        let locks = read_locks(app).await.unwrap_or_else(unchanged);
        let lane = |mut lane: QueueView| {
            // This value grows with time alone, so it is no change.
            lane.oldest_due_us = 0;
            ((lane.namespace.clone(), lane.queue.clone(), lane.operation.clone()), lane)
        };
        Ok(Self {
            steps: newest.into_iter().chain(stuck).map(|step| (step.id, changed_step(step))).collect(),
            queues: queues.into_iter().map(Into::into).map(lane).collect(),
            locks,
            acceptor: app.acceptor.as_deref().map(changed_acceptor),
            ledgers: app.ledgers.as_deref().map(changed_ledgers).unwrap_or_default(),
        })
    }

    /// Sends events for all differences from `before`.
    pub(super) fn send_changes_since(&self, before: &Self, events: &Events) {
        events.send("steps", &changed(&self.steps, &before.steps));
        events.send("queues", &changed(&self.queues, &before.queues));
        let mut locks = changed(&self.locks, &before.locks);
        let released = before.locks.iter().filter(|(key, _)| !self.locks.contains_key(*key));
        locks.extend(released.map(|(_, lock)| ChangedLock { held: false, ..lock.clone() }));
        events.send("locks", &locks);
        let acceptor = self.acceptor.iter().filter(|_| self.acceptor != before.acceptor);
        events.send("acceptor", &acceptor.collect::<Vec<_>>());
        events.send("ledger", &changed(&self.ledgers, &before.ledgers));
    }
}

/// Returns the held locks, if they can be read.
async fn read_locks(app: &App) -> Option<ByDigest> {
    let held = holdoff_lock::LockFilter::default().held().limit(MAX_LOCKS);
    let list = app.locking.locks().await.ok()?.list(&held);
    let found = tokio::time::timeout(LOCKS_TIMEOUT, list).await.ok()?.ok()?;
    let lock = |lock: holdoff_lock::LockRecord| {
        let (namespace, digest, token) = (lock.namespace, lock.digest, lock.token);
        let key = (namespace.clone(), digest.clone());
        (key, ChangedLock { namespace, key: lock.key, digest, token, held: true })
    };
    Some(found.into_iter().map(lock).collect())
}

/// Returns the values that are new or that have changed.
fn changed<K: Ord, T: Clone + PartialEq>(now: &BTreeMap<K, T>, before: &BTreeMap<K, T>) -> Vec<T> {
    now.iter().filter(|(key, value)| before.get(key) != Some(value)).map(|(_, value)| value.clone()).collect()
}

fn changed_acceptor(acceptor: &LocalAcceptor) -> ChangedAcceptor {
    let inspector = &acceptor.inspector;
    let connections = inspector.connected().iter().map(|peer| peer.from.len()).sum();
    let stopped = inspector.stopped().is_some();
    ChangedAcceptor { requests: inspector.stats().total_requests(), connections, stopped }
}

fn changed_ledgers(ledgers: &Ledgers) -> BTreeMap<String, ChangedLedger> {
    let head = |node: Node| {
        let (namespace, status) = (node.namespace().to_owned(), *node.watch_status().borrow());
        let leader = status.leader.map(|leader| leader.to_string());
        (namespace.clone(), ChangedLedger { namespace, index: status.head.index.0, leader })
    };
    ledgers.nodes().into_iter().map(head).collect()
}

fn changed_step(step: StepRecord) -> ChangedStep {
    let StepRecord { id, state, namespace, queue, operation, failures, .. } = step;
    ChangedStep { id, state, namespace, queue, operation, failures }
}
