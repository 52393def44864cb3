//! Who has the task for which signal, of daemons with a store each: it stands in the ledger that they share.
//!
//! ```text
//! row.rs     what stands there, and how it changes    tend.rs  saying that this daemon lives; letting go of what is over
//! pauses.rs  waiting for what somebody else does
//! ```
//!
//! # Invariants
//!
//! - A claim is taken by compare-and-set, before the task is made, and names the daemon that makes it.
//! - It stands as long as its task lives, and as long as its daemon does: that renews a lock, and whoever finds the lock
//!   nobody's may take the claim over.
//! - Whatever changes a claim expects to find it as it was read, and no two are alike.

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

/// The longest wait before looking again, for what somebody else is just doing.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the ledger may take to count a signal, and to take a claim. Whoever sends a signal waits no longer than these and
/// the lock take together.
const COUNTING: Duration = Duration::from_secs(1);
const CLAIMING: Duration = Duration::from_secs(3);
/// The namespace of the locks by which daemons say that they live.
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
    /// How many are making its task just now.
    making: u32,
    /// Whether others can see which task it is.
    is_made: bool,
}

/// What became of the wish to claim a signal.
enum Claimed {
    Here(Node, Claim),
    Elsewhere(Found),
    /// Nobody can be asked.
    Not,
}

/// Somebody is making the task of a claim; when this ends, also because the client went away, it is looked after.
struct Making<'a> {
    inner: &'a Inner,
    row: Row,
}

/// What became of a signal, and which daemon has its task, if that is another.
pub(crate) type Found = (Signalled, Option<Elsewhere>);

impl Claims {
    /// Of daemons that keep their locks, these, in the ledger of this name.
    pub(crate) fn new(
        ledgers: Arc<Ledgers>,
        name: Arc<str>,
        locks: &Locks,
        work: Work,
    ) -> Result<Self, holdoff_lock::Error> {
        let locks = locks.with_namespace(NAMESPACE)?;
        Ok(Self(Arc::new(Inner { ledgers, name, locks, work, own: Mutex::default() })))
    }

    /// Waits until somebody leads the ledger, for so long at most; answers whether somebody does.
    pub(crate) async fn is_led_within(&self, wait: Duration) -> bool {
        let Ok(node) = self.0.node() else { return false };
        let mut glance = node.glance();
        // Who does not vote hears of nobody.
        if glance.borrow().leader.is_some() || learns(&node).await {
            return true;
        }
        let led = glance.wait_for(|glance| glance.leader.is_some());
        tokio::time::timeout(wait, led).await.is_ok_and(|led| led.is_ok())
    }

    /// Counts a signal whose task lives at another daemon; nothing, if there is none or that cannot be known soon.
    pub(crate) async fn look(&self, namespace: &str, fingerprint: Fingerprint) -> Option<Found> {
        let (inner, row) = (&*self.0, Row::of(namespace, fingerprint));
        let looking = async {
            let node: Node = inner.node()?;
            let Some((value, claim)) = row.at_hand(&node).await? else { return Ok(None) };
            inner.count_elsewhere(&node, &row, value, &claim).await
        };
        tokio::time::timeout(COUNTING, looking).await.ok()?.ok()?
    }

    /// Counts a signal whose task is here, for all. If the ledger does not answer soon, it stays counted for this daemon.
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

    /// Makes the task of a signal that none lives for here, unless one lives elsewhere: then that is counted. No signal is lost
    /// because nobody leads the ledger: this daemon makes a task of its own then.
    pub(crate) async fn make(
        &self,
        namespace: &str,
        fingerprint: Fingerprint,
        task: Task,
    ) -> Result<Found, Problem> {
        let (inner, row) = (&*self.0, Row::of(namespace, fingerprint));
        // From here on, whatever comes of the claim is looked after, also if the client goes away.
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
                // Somebody in this daemon may have been faster, without the lock.
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

    /// Takes the claim for this daemon, unless another has it.
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
            // Others would take over what somebody claims who does not say that it lives.
            if !self.lives(&claim).await? {
                pauses.wait().await;
                continue;
            }
            if row.take(&node, before.map(|(value, _)| value), &claim).await? != Said::Differs {
                return Ok(Claimed::Here(node, claim));
            }
        }
    }

    /// Whether the daemon of a claim lives, as far as is known here.
    async fn lives(&self, claim: &Claim) -> Result<bool, Problem> {
        let lock = self.locks.inspect(claim.lock()).await?;
        Ok(lock.is_some_and(|lock| lock.holder.is_some()))
    }

    /// Whether a claim is another daemon's that lives.
    async fn stands_elsewhere(&self, node: &Node, claim: &Claim) -> Result<bool, Problem> {
        Ok(!claim.is_of(node) && self.lives(claim).await?)
    }

    /// Counts a signal for a task that lives at another daemon; nothing if there is none, or not yet.
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
