//! Claims of signals: if each daemon has its own store, the shared ledger records which daemon has the task of a
//! signal.
//!
//! ```text
//! key.rs     the ledger rows of a signal (its claim and its count), and their compare-and-set changes
//! upkeep.rs  two background loops: one renews the daemon's lock, one releases the claims of ended tasks
//! ```
//!
//! # Invariants
//!
//! - A daemon takes a claim by compare-and-set before it creates the task. The claim names the daemon.
//! - A claim stands as long as its task is live and its daemon is alive. A live daemon renews a lock. When that lock
//!   has no holder, another daemon may take the claim over.
//! - Every change of a claim expects the value that was read, and no two claims have the same value.

mod key;
mod upkeep;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use holdoff_ledger::machine::Value;
use holdoff_ledger::runtime::Role;
use holdoff_lock::Locks;
use holdoff_policy::Jitter;
use holdoff_retry::Backoff;
use holdoff_work::{Fingerprint, Signalled, Task, Work};
use parking_lot::{Mutex, MutexGuard};

use crate::ledgers::{Ledgers, Node, status};
use crate::problem::Problem;

pub(crate) use key::RemoteDaemon;
use key::{ChangeOutcome, ClaimKey, SignalClaim};

/// The maximum backoff before the claim is read again while another daemon makes progress.
const MAX_BACKOFF: Duration = Duration::from_millis(200);
/// The first backoff, before jitter.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// The timeouts of the ledger for counting a signal and for taking a claim. The sender of a signal waits no longer than
/// both of them and the acquisition of the lock together.
const COUNT_TIMEOUT: Duration = Duration::from_secs(1);
const CLAIM_TIMEOUT: Duration = Duration::from_secs(3);
/// The namespace of the locks that daemons hold while they are alive.
const NAMESPACE: &str = "holdoff";

/// Returns the backoff while another daemon makes progress on the same claim. It is random, so that daemons that wait
/// for the same claim do not retry together; the caller has a deadline of its own.
fn backoff_up_to(cap: Duration) -> Backoff {
    Backoff::exponential(FIRST_BACKOFF, cap, Jitter::Equal)
}

/// The claims of the daemons that share a ledger. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Claims(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ledgers: Arc<Ledgers>,
    name: Arc<str>,
    locks: Locks,
    work: Work,
    own: Mutex<HashMap<ClaimKey, OwnClaim>>,
}

/// A claim of this daemon.
#[derive(Clone, Debug)]
struct OwnClaim {
    namespace: String,
    fingerprint: Fingerprint,
    /// The number of requests that are creating its task.
    creating: u32,
    /// Whether the claim in the ledger names the task, so that other daemons can see it.
    is_recorded: bool,
}

/// The result of an attempt to claim a signal.
enum ClaimOutcome {
    Acquired(Node, SignalClaim),
    Remote(SignalResult),
    /// The ledger has no leader, so no claim is possible.
    NoLeader,
}

/// A request is creating the task of a claim. When this is dropped, also because the client disconnected, the
/// background loop takes care of the claim.
struct CreationGuard<'a> {
    inner: &'a Inner,
    key: ClaimKey,
}

/// The outcome of a signal, and the daemon that has its task if it is another one.
pub(crate) type SignalResult = (Signalled, Option<RemoteDaemon>);

impl Claims {
    /// Creates the claims for daemons that keep `locks` in the ledger `name`.
    pub(crate) fn new(
        ledgers: Arc<Ledgers>,
        name: Arc<str>,
        locks: &Locks,
        work: Work,
    ) -> Result<Self, holdoff_lock::Error> {
        let locks = locks.with_namespace(NAMESPACE)?;
        Ok(Self(Arc::new(Inner { ledgers, name, locks, work, own: Mutex::default() })))
    }

    /// Waits at most `wait` for the ledger to have a leader. Returns whether it has one.
    pub(crate) async fn has_leader_within(&self, wait: Duration) -> bool {
        let Ok(node) = self.0.node() else { return false };
        let mut status_watch = node.watch_status();
        // A member that does not vote does not learn who leads.
        if status_watch.borrow().leader.is_some() || is_learner(&node).await {
            return true;
        }
        let led = status_watch.wait_for(|status| status.leader.is_some());
        tokio::time::timeout(wait, led).await.is_ok_and(|led| led.is_ok())
    }

    /// Counts a signal whose task is live on another daemon. Returns `None` if there is no such task, or if the ledger
    /// does not answer within [`COUNT_TIMEOUT`].
    pub(crate) async fn count_remote(
        &self,
        namespace: &str,
        fingerprint: Fingerprint,
    ) -> Option<SignalResult> {
        let (inner, key) = (&*self.0, ClaimKey::of(namespace, fingerprint));
        let counting = async {
            let node: Node = inner.node()?;
            let Some((value, claim)) = key.read_local(&node).await? else { return Ok(None) };
            inner.count_for_remote(&node, &key, value, &claim).await
        };
        tokio::time::timeout(COUNT_TIMEOUT, counting).await.ok()?.ok()?
    }

    /// Counts a signal whose task is on this daemon, in the count that all daemons share. If the ledger does not answer
    /// within [`COUNT_TIMEOUT`], the signal is counted on this daemon only.
    pub(crate) async fn count_local(
        &self,
        namespace: &str,
        fingerprint: Fingerprint,
        found: Signalled,
    ) -> Signalled {
        let counting = async {
            let (node, key) = (self.0.node()?, ClaimKey::of(namespace, fingerprint));
            let claim = key.read_local(&node).await?;
            let Some((value, _)) = claim.filter(|(_, claim)| claim.is_for(&node, found.task())) else {
                return Ok(None);
            };
            key.count(&node, value).await
        };
        match tokio::time::timeout(COUNT_TIMEOUT, counting).await {
            Ok(Ok(Some(occurrences))) => Signalled::Duplicate { task: found.task(), occurrences },
            _ => found,
        }
    }

    /// Creates the task of a signal that has no live task on this daemon. If another daemon has a live task, the signal
    /// is counted there instead. If the ledger has no leader, this daemon creates a task of its own, so that no signal
    /// is lost.
    pub(crate) async fn create(
        &self,
        namespace: &str,
        fingerprint: Fingerprint,
        task: Task,
    ) -> Result<SignalResult, Problem> {
        let (inner, key) = (&*self.0, ClaimKey::of(namespace, fingerprint));
        // From here on the background loop takes care of the claim, even if the client disconnects.
        let _creating = inner.creating(&key, namespace, fingerprint);
        let claiming = tokio::time::timeout(CLAIM_TIMEOUT, inner.claim(&key, namespace, fingerprint));
        let claimed = if self.has_leader_within(Duration::ZERO).await {
            match claiming.await {
                Ok(Ok(claimed)) => claimed,
                _ if !self.has_leader_within(Duration::ZERO).await => ClaimOutcome::NoLeader,
                Ok(Err(problem)) => return Err(problem),
                Err(_) => {
                    return Err(Problem::unavailable(
                        "the ledger did not answer in time; send the signal again",
                    ));
                }
            }
        } else {
            ClaimOutcome::NoLeader
        };
        match claimed {
            ClaimOutcome::Remote(found) => Ok(found),
            ClaimOutcome::Acquired(node, claim) => {
                let signalled = inner.work.signal(fingerprint, task).await?;
                let with_task = claim.with(signalled.task());
                let recording = key.replace(&node, &claim, Some(&with_task));
                if !matches!(tokio::time::timeout(COUNT_TIMEOUT, recording).await, Ok(Ok(_))) {
                    tracing::debug!("failed to record the task in its claim; the background loop retries");
                }
                // Another request of this daemon may have created the task without the lock.
                let is_new = matches!(signalled, Signalled::Created(_));
                let counted = if is_new {
                    signalled
                } else {
                    self.count_local(namespace, fingerprint, signalled).await
                };
                Ok((counted, None))
            }
            ClaimOutcome::NoLeader => {
                tracing::warn!(
                    namespace,
                    "created the task of a signal without a claim, because the ledger has no leader"
                );
                Ok((inner.work.signal(fingerprint, task).await?, None))
            }
        }
    }
}

impl Inner {
    fn node(&self) -> Result<Node, Problem> {
        self.ledgers.node(&self.name)
    }

    fn own(&self) -> MutexGuard<'_, HashMap<ClaimKey, OwnClaim>> {
        self.own.lock()
    }

    fn creating(&self, key: &ClaimKey, namespace: &str, fingerprint: Fingerprint) -> CreationGuard<'_> {
        let new =
            || OwnClaim { namespace: namespace.to_owned(), fingerprint, creating: 0, is_recorded: false };
        let mut own = self.own();
        let entry = own.entry(key.clone()).or_insert_with(new);
        (entry.creating, entry.is_recorded) = (entry.creating + 1, false);
        CreationGuard { inner: self, key: key.clone() }
    }

    /// Takes the claim for this daemon, unless another live daemon has it.
    async fn claim(
        &self,
        key: &ClaimKey,
        namespace: &str,
        fingerprint: Fingerprint,
    ) -> Result<ClaimOutcome, Problem> {
        let (node, mut backoff) = (self.node()?, backoff_up_to(MAX_BACKOFF));
        loop {
            let before = key.read_latest(&node).await?;
            if let Some((value, claim)) = &before {
                if let Some(found) = self.count_for_remote(&node, key, value.clone(), claim).await? {
                    return Ok(ClaimOutcome::Remote(found));
                }
                if self.is_held_remotely(&node, claim).await? {
                    backoff.wait().await;
                    continue;
                }
            }
            let claim = SignalClaim::new(&node, namespace, fingerprint)?;
            // This daemon must hold its own lock first: otherwise other daemons would take over the claim.
            if !self.is_alive(&claim).await? {
                backoff.wait().await;
                continue;
            }
            if key.acquire(&node, before.map(|(value, _)| value), &claim).await? != ChangeOutcome::Conflict {
                return Ok(ClaimOutcome::Acquired(node, claim));
            }
        }
    }

    /// Returns whether the daemon of a claim is alive, as far as this node knows.
    async fn is_alive(&self, claim: &SignalClaim) -> Result<bool, Problem> {
        let lock = self.locks.inspect(claim.lock()).await?;
        Ok(lock.is_some_and(|lock| lock.holder.is_some()))
    }

    /// Returns whether the claim belongs to another daemon that is alive.
    async fn is_held_remotely(&self, node: &Node, claim: &SignalClaim) -> Result<bool, Problem> {
        Ok(!claim.is_of(node) && self.is_alive(claim).await?)
    }

    /// Counts a signal for a live task of another daemon. Returns `None` if there is no such task, or if it is not
    /// created yet.
    async fn count_for_remote(
        &self,
        node: &Node,
        key: &ClaimKey,
        value: Value,
        claim: &SignalClaim,
    ) -> Result<Option<SignalResult>, Problem> {
        let Some((task, at)) = claim.task() else { return Ok(None) };
        if !self.is_held_remotely(node, claim).await? {
            return Ok(None);
        }
        let counted = key.count(node, value).await?;
        Ok(counted.map(|occurrences| (Signalled::Duplicate { task, occurrences }, Some(at))))
    }
}

async fn is_learner(node: &Node) -> bool {
    status(node).await.is_ok_and(|status| status.role == Role::Learner)
}

impl Drop for CreationGuard<'_> {
    fn drop(&mut self) {
        if let Some(own) = self.inner.own().get_mut(&self.key) {
            own.creating = own.creating.saturating_sub(1);
        }
    }
}
