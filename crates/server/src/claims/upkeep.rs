//! Background loops of the daemon: one renews the lock that shows that the daemon is alive, and one releases claims
//! whose task has ended.

use std::time::Duration;

use holdoff_lock::{Error, Lease, LockKey};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::key::{self, ChangeOutcome, ClaimKey};
use super::{Claims, Inner, NAMESPACE, OwnClaim};
use crate::clock;
use crate::ledgers::Node;
use crate::problem::Problem;

/// The interval between checks for ended tasks.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// After a check the loop sleeps this many times as long as the check took, so that checks use little of the store's
/// time. The sleep is at most [`MAX_INTERVAL`].
const REST_FACTOR: u32 = 10;
/// The loop reads all claims of the ledger once in this many checks, to find those of an earlier run of this daemon.
const FULL_SCAN_EVERY: u32 = 20;
/// The maximum interval between checks, and the interval after an error.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

impl Claims {
    /// Starts both loops. They run until the daemon stops.
    pub(crate) fn start(&self, stopping: &CancellationToken) -> [JoinHandle<()>; 2] {
        let (hold_lock, release_ended) =
            (self.clone().hold_lock(stopping.clone()), self.clone().release_ended(stopping.clone()));
        [tokio::spawn(hold_lock), tokio::spawn(release_ended)]
    }

    /// Holds the daemon's lock until the daemon stops. The lock is not released but expires: a daemon that restarts
    /// within the lease keeps its claims.
    async fn hold_lock(self, stopping: CancellationToken) {
        let holding = async {
            let mut backoff = super::backoff_up_to(super::MAX_BACKOFF);
            loop {
                match self.0.acquire_lock().await {
                    Ok(lease) => self.0.renew(&lease).await,
                    Err(_) => backoff.wait().await,
                }
            }
        };
        stopping.run_until_cancelled(holding).await;
    }

    /// Releases claims whose task has ended, until the daemon stops.
    async fn release_ended(self, stopping: CancellationToken) {
        let checking = async {
            let mut rest = CHECK_INTERVAL;
            for round in 0_u32.. {
                tokio::time::sleep(rest).await;
                let since = clock::now();
                let result = self.0.release_ended(round % FULL_SCAN_EVERY == 0).await;
                rest = (clock::now().saturating_sub(since) * REST_FACTOR).clamp(CHECK_INTERVAL, MAX_INTERVAL);
                if let Err(why) = result {
                    tracing::debug!(?why, "failed to check the claims of signals");
                    rest = MAX_INTERVAL;
                }
            }
        };
        stopping.run_until_cancelled(checking).await;
    }
}

impl Inner {
    /// Returns the lease of the daemon's lock. No other process uses this lock, so a lease of an earlier run is this
    /// daemon's own.
    async fn acquire_lock(&self) -> Result<Lease, Error> {
        // Before the node has joined the ledger, there is no store to ask.
        let Ok(node) = self.node() else {
            return Err(Error::Settings("this node has not joined the ledger yet".to_owned()));
        };
        let lock = key::lock_of(&node.key().to_string());
        if let Some(holder) = self.locks.inspect(&lock).await?.and_then(|lock| lock.holder) {
            return Ok(Lease::new(LockKey::new(NAMESPACE, lock)?, holder.owner.nonce, holder.token));
        }
        Ok(self.locks.acquire(lock).name("signals").wait(MAX_INTERVAL).acquire_detached().await?.accept())
    }

    /// Renews the lease until it is lost.
    async fn renew(&self, lease: &Lease) {
        let duration = self.locks.settings().lease();
        let mut backoff = super::backoff_up_to(duration / 20);
        loop {
            match self.locks.renew(lease, duration).await {
                Ok(_) => {
                    backoff.reset();
                    tokio::time::sleep(duration / 3).await;
                }
                Err(Error::Lost { .. }) => return,
                Err(_) => backoff.wait().await,
            }
        }
    }

    async fn release_ended(&self, scans_all: bool) -> Result<(), Problem> {
        let node = self.node()?;
        if scans_all {
            for (key, claim) in key::own(&node).await? {
                let Some(fingerprint) = claim.fingerprint() else { continue };
                let own =
                    OwnClaim { namespace: claim.namespace, fingerprint, creating: 0, is_recorded: false };
                self.own().entry(key).or_insert(own);
            }
        }
        let own: Vec<_> = self.own().iter().map(|(key, own)| (key.clone(), own.clone())).collect();
        for (key, own) in own.into_iter().filter(|(_, own)| own.creating == 0) {
            self.release_if_ended(&node, &key, &own).await?;
        }
        Ok(())
    }

    async fn release_if_ended(&self, node: &Node, key: &ClaimKey, own: &OwnClaim) -> Result<(), Problem> {
        let live_task = self.work.signal_task(&own.namespace, own.fingerprint).await?;
        if live_task.is_some() && own.is_recorded {
            return Ok(());
        }
        let claim = key.read_local(node).await?.map(|(_, claim)| claim).filter(|claim| claim.is_of(node));
        let Some(claim) = claim else {
            self.forget(key);
            return Ok(());
        };
        // A request is creating the task: it updates the claim, or leaves that to the next check.
        if self.is_being_created(key) {
            return Ok(());
        }
        match live_task {
            Some(_) if claim.has_task() => self.mark_recorded(key),
            Some(task) => {
                key.replace(node, &claim, Some(&claim.with(task))).await?;
            }
            None => {
                if key.replace(node, &claim, None).await? != ChangeOutcome::Conflict {
                    self.forget(key);
                }
            }
        }
        Ok(())
    }

    fn mark_recorded(&self, key: &ClaimKey) {
        if let Some(own) = self.own().get_mut(key) {
            own.is_recorded = true;
        }
    }

    fn is_being_created(&self, key: &ClaimKey) -> bool {
        self.own().get(key).is_some_and(|own| own.creating > 0)
    }

    fn forget(&self, key: &ClaimKey) {
        let mut own = self.own();
        if own.get(key).is_some_and(|own| own.creating == 0) {
            own.remove(key);
        }
    }
}
