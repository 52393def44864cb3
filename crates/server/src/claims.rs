//! Claims of signals: if each daemon has its own store, the shared ledger records which daemon has the task of a
//! signal.
//!
//! ```text
//! row.rs     what stands there, and how it changes    tend.rs  saying that this daemon lives; letting go of what is over
//! pauses.rs  waiting for what somebody else does
//! ```
//!
//! # Invariants
//!
//! - A daemon takes a claim by compare-and-set before it creates the task. The claim names the daemon.
//! - A claim stands as long as its task is live and its daemon is alive. A live daemon renews a lock. When that lock
//!   has no holder, another daemon may take the claim over.
//! - Every change of a claim expects the value that was read, and no two claims have the same value.

mod pauses;
mod row;
mod tend;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_ledger::machine::Value;
use holdoff_ledger::runtime::Role;
use holdoff_lock::Locks;
use holdoff_work::{Fingerprint, Signalled, Task, Work};

use crate::ledgers::{Ledgers, Node, status};
use crate::problem::Problem;

use pauses::Pauses;
pub(crate) use row::Elsewhere;
use row::{Claim, Row, Said};

/// The maximum backoff before the claim is read again while another daemon makes progress.
const PAUSE: Duration = Duration::from_millis(200);
/// The timeouts of the ledger for counting a signal and for taking a claim. The sender of a signal waits no longer than
/// both of them and the acquisition of the lock together.
const COUNTING: Duration = Duration::from_secs(1);
const CLAIMING: Duration = Duration::from_secs(3);
/// The namespace of the locks that daemons hold while they are alive.
const NAMESPACE: &str = "holdoff";

/// The claims of the daemons that share a ledger. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Claims(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ledgers: Arc<Ledgers>,
    name: Arc<str>,
    locks: Locks,
    work: Work,
    own: Mutex<HashMap<Row, Own>>,
}

/// A claim of this daemon.
#[derive(Clone, Debug)]
struct Own {
    namespace: String,
    fingerprint: Fingerprint,
    /// The number of requests that are creating its task.
    making: u32,
    /// Whether the claim in the ledger names the task, so that other daemons can see it.
    is_made: bool,
}

/// The result of an attempt to claim a signal.
enum Claimed {
    Here(Node, Claim),
    Elsewhere(Found),
    /// The ledger has no leader, so no claim is possible.
    Not,
}

/// A request is creating the task of a claim. When this is dropped, also because the client disconnected, the
/// background loop takes care of the claim.
struct Making<'a> {
    inner: &'a Inner,
    row: Row,
}

/// The outcome of a signal, and the daemon that has its task if it is another one.
pub(crate) type Found = (Signalled, Option<Elsewhere>);

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
    pub(crate) async fn is_led_within(&self, wait: Duration) -> bool {
        let Ok(node) = self.0.node() else { return false };
        let mut glance = node.glance();
        // A member that does not vote does not learn who leads.
        if glance.borrow().leader.is_some() || learns(&node).await {
            return true;
        }
        let led = glance.wait_for(|glance| glance.leader.is_some());
        tokio::time::timeout(wait, led).await.is_ok_and(|led| led.is_ok())
    }

    /// Counts a signal whose task is live on another daemon. Returns `None` if there is no such task, or if the ledger
    /// does not answer within [`COUNTING`].
    pub(crate) async fn look(&self, namespace: &str, fingerprint: Fingerprint) -> Option<Found> {
        let (inner, row) = (&*self.0, Row::of(namespace, fingerprint));
        let looking = async {
            let node: Node = inner.node()?;
            let Some((value, claim)) = row.at_hand(&node).await? else { return Ok(None) };
            inner.count_elsewhere(&node, &row, value, &claim).await
        };
        tokio::time::timeout(COUNTING, looking).await.ok()?.ok()?
    }

    /// Counts a signal whose task is on this daemon, in the count that all daemons share. If the ledger does not answer
    /// within [`COUNTING`], the signal is counted on this daemon only.
    pub(crate) async fn count_here(
        &self,
        namespace: &str,
        fingerprint: Fingerprint,
        found: Signalled,
    ) -> Signalled {
        let counting = async {
            let (node, row) = (self.0.node()?, Row::of(namespace, fingerprint));
            let claim = row.at_hand(&node).await?;
            let Some((value, _)) = claim.filter(|(_, claim)| claim.is_for(&node, found.task())) else {
                return Ok(None);
            };
            row.count(&node, value).await
        };
        match tokio::time::timeout(COUNTING, counting).await {
            Ok(Ok(Some(occurrences))) => Signalled::Duplicate { task: found.task(), occurrences },
            _ => found,
        }
    }

    /// Creates the task of a signal that has no live task on this daemon. If another daemon has a live task, the signal
    /// is counted there instead. If the ledger has no leader, this daemon creates a task of its own, so that no signal
    /// is lost.
    pub(crate) async fn make(
        &self,
        namespace: &str,
        fingerprint: Fingerprint,
        task: Task,
    ) -> Result<Found, Problem> {
        let (inner, row) = (&*self.0, Row::of(namespace, fingerprint));
        // From here on the background loop takes care of the claim, even if the client disconnects.
        let _making = inner.making(&row, namespace, fingerprint);
        let claiming = tokio::time::timeout(CLAIMING, inner.claim(&row, namespace, fingerprint));
        let claimed = if self.is_led_within(Duration::ZERO).await {
            match claiming.await {
                Ok(Ok(claimed)) => claimed,
                _ if !self.is_led_within(Duration::ZERO).await => Claimed::Not,
                Ok(Err(problem)) => return Err(problem),
                Err(_) => {
                    return Err(Problem::unavailable("the ledger is slow; the signal may be sent again"));
                }
            }
        } else {
            Claimed::Not
        };
        match claimed {
            Claimed::Elsewhere(found) => Ok(found),
            Claimed::Here(node, claim) => {
                let signalled = inner.work.signal(fingerprint, task).await?;
                let made = claim.with(signalled.task());
                let ending = row.change(&node, &claim, Some(&made));
                if !matches!(tokio::time::timeout(COUNTING, ending).await, Ok(Ok(_))) {
                    tracing::debug!("a claim is not brought to its end yet; it is looked after");
                }
                // Another request of this daemon may have created the task without the lock.
                let is_new = matches!(signalled, Signalled::Created(_));
                let counted =
                    if is_new { signalled } else { self.count_here(namespace, fingerprint, signalled).await };
                Ok((counted, None))
            }
            Claimed::Not => {
                tracing::warn!(
                    namespace,
                    "a signal's task is made without asking others: nobody leads the ledger"
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

    fn own(&self) -> MutexGuard<'_, HashMap<Row, Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn making(&self, row: &Row, namespace: &str, fingerprint: Fingerprint) -> Making<'_> {
        let new = || Own { namespace: namespace.to_owned(), fingerprint, making: 0, is_made: false };
        let mut own = self.own();
        let entry = own.entry(row.clone()).or_insert_with(new);
        (entry.making, entry.is_made) = (entry.making + 1, false);
        Making { inner: self, row: row.clone() }
    }

    /// Takes the claim for this daemon, unless another live daemon has it.
    async fn claim(&self, row: &Row, namespace: &str, fingerprint: Fingerprint) -> Result<Claimed, Problem> {
        let (node, mut pauses) = (self.node()?, Pauses::up_to(PAUSE));
        loop {
            let before = row.newest(&node).await?;
            if let Some((value, claim)) = &before {
                if let Some(found) = self.count_elsewhere(&node, row, value.clone(), claim).await? {
                    return Ok(Claimed::Elsewhere(found));
                }
                if self.stands_elsewhere(&node, claim).await? {
                    pauses.wait().await;
                    continue;
                }
            }
            let claim = Claim::new(&node, namespace, fingerprint)?;
            // This daemon must hold its own lock first: otherwise other daemons would take over the claim.
            if !self.lives(&claim).await? {
                pauses.wait().await;
                continue;
            }
            if row.take(&node, before.map(|(value, _)| value), &claim).await? != Said::Differs {
                return Ok(Claimed::Here(node, claim));
            }
        }
    }

    /// Returns whether the daemon of a claim is alive, as far as this node knows.
    async fn lives(&self, claim: &Claim) -> Result<bool, Problem> {
        let lock = self.locks.inspect(claim.lock()).await?;
        Ok(lock.is_some_and(|lock| lock.holder.is_some()))
    }

    /// Returns whether the claim belongs to another daemon that is alive.
    async fn stands_elsewhere(&self, node: &Node, claim: &Claim) -> Result<bool, Problem> {
        Ok(!claim.is_of(node) && self.lives(claim).await?)
    }

    /// Counts a signal for a live task of another daemon. Returns `None` if there is no such task, or if it is not
    /// created yet.
    async fn count_elsewhere(
        &self,
        node: &Node,
        row: &Row,
        value: Value,
        claim: &Claim,
    ) -> Result<Option<Found>, Problem> {
        let Some((task, at)) = claim.task() else { return Ok(None) };
        if !self.stands_elsewhere(node, claim).await? {
            return Ok(None);
        }
        let counted = row.count(node, value).await?;
        Ok(counted.map(|occurrences| (Signalled::Duplicate { task, occurrences }, Some(at))))
    }
}

async fn learns(node: &Node) -> bool {
    status(node).await.is_ok_and(|status| status.role == Role::Learns)
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if let Some(own) = self.inner.own().get_mut(&self.row) {
            own.making = own.making.saturating_sub(1);
        }
    }
}
