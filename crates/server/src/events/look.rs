//! The observed state, and its difference from an earlier one.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_work::{Filter, Page, StepId, StepRecord, StepState};
use serde::Serialize;

use super::Events;
use crate::acceptor::Acceptor;
use crate::api::ShownQueue;
use crate::app::App;
use crate::ledgers::{Ledgers, Node};
use crate::problem::Problem;

/// The number of the newest steps that a poll reads, and of the newest failed or conflicted ones.
const STEPS: u32 = 200;
/// The number of held locks that a poll reads.
const LOCKS: u32 = 1000;

/// The timeout for reading locks.
const PATIENCE: Duration = Duration::from_secs(1);

/// Locks, by namespace and digest.
type ByDigest = BTreeMap<(String, String), ChangedLock>;

/// The state that one poll observed.
pub(super) struct Seen {
    steps: BTreeMap<StepId, ShownChange>,
    queues: BTreeMap<(String, String, String), ShownQueue>,
    locks: ByDigest,
    acceptor: Option<ChangedAcceptor>,
    ledgers: BTreeMap<String, ChangedLedger>,
}

/// A step that changed.
#[derive(Clone, PartialEq, Eq, Serialize)]
struct ShownChange {
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
    questions: u64,
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
    token: u64,
    held: bool,
}

impl Seen {
    /// Reads the newest state of everything. Locks may be in another store than the rest: if they cannot be read, they
    /// count as unchanged.
    pub(super) async fn look(app: &App, before: Option<&Self>) -> Result<Self, Problem> {
        let newest = app.work.list(&Filter::default(), &Page::first(STEPS)).await?;
        let trouble = Filter::states([StepState::Failed, StepState::Conflicted]);
        let trouble = app.work.list(&trouble, &Page::first(STEPS)).await?;
        let queues = app.work.stats().await?;
        let as_before = || before.map(|before| before.locks.clone()).unwrap_or_default();
        let locks = locks(app).await.unwrap_or_else(as_before);
        let lane = |mut lane: ShownQueue| {
            // This value grows with time alone, so it is no change.
            lane.oldest_due_us = 0;
            ((lane.namespace.clone(), lane.queue.clone(), lane.operation.clone()), lane)
        };
        Ok(Self {
            steps: newest.into_iter().chain(trouble).map(|step| (step.id, shown(step))).collect(),
            queues: queues.into_iter().map(Into::into).map(lane).collect(),
            locks,
            acceptor: app.acceptor.as_deref().map(asked),
            ledgers: app.ledgers.as_deref().map(heads).unwrap_or_default(),
        })
    }

    /// Sends events for all differences from `before`.
    pub(super) fn tell_since(&self, before: &Self, events: &Events) {
        events.tell("steps", &changed(&self.steps, &before.steps));
        events.tell("queues", &changed(&self.queues, &before.queues));
        let mut locks = changed(&self.locks, &before.locks);
        let let_go = before.locks.iter().filter(|(key, _)| !self.locks.contains_key(*key));
        locks.extend(let_go.map(|(_, lock)| ChangedLock { held: false, ..lock.clone() }));
        events.tell("locks", &locks);
        let acceptor = self.acceptor.iter().filter(|_| self.acceptor != before.acceptor);
        events.tell("acceptor", &acceptor.collect::<Vec<_>>());
        events.tell("ledger", &changed(&self.ledgers, &before.ledgers));
    }
}

/// Returns the held locks, if they can be read.
async fn locks(app: &App) -> Option<ByDigest> {
    let held = holdoff_lock::Filter::default().held().limit(LOCKS);
    let list = app.locking.here().await.ok()?.list(&held);
    let found = tokio::time::timeout(PATIENCE, list).await.ok()?.ok()?;
    let lock = |lock: holdoff_lock::LockRecord| {
        let (namespace, digest, token) = (lock.namespace, lock.digest, lock.token.get());
        let key = (namespace.clone(), digest.clone());
        (key, ChangedLock { namespace, key: lock.key, digest, token, held: true })
    };
    Some(found.into_iter().map(lock).collect())
}

/// Returns the values that are new or that have changed.
fn changed<K: Ord, T: Clone + PartialEq>(now: &BTreeMap<K, T>, before: &BTreeMap<K, T>) -> Vec<T> {
    now.iter().filter(|(key, value)| before.get(key) != Some(value)).map(|(_, value)| value.clone()).collect()
}

fn asked(acceptor: &Acceptor) -> ChangedAcceptor {
    let lookout = &acceptor.lookout;
    let connections = lookout.connected().iter().map(|peer| peer.from.len()).sum();
    let stopped = lookout.stopped().is_some();
    ChangedAcceptor { questions: lookout.figures().questions(), connections, stopped }
}

fn heads(ledgers: &Ledgers) -> BTreeMap<String, ChangedLedger> {
    let head = |node: Node| {
        let (namespace, glance) = (node.namespace().to_owned(), *node.glance().borrow());
        let leader = glance.leader.map(|leader| leader.to_string());
        (namespace.clone(), ChangedLedger { namespace, index: glance.head.index.0, leader })
    };
    ledgers.nodes().into_iter().map(head).collect()
}

fn shown(step: StepRecord) -> ShownChange {
    let StepRecord { id, state, namespace, queue, operation, failures, .. } = step;
    ShownChange { id, state, namespace, queue, operation, failures }
}
