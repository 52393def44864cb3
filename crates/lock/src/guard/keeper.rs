//! The task that renews a lock and releases it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_policy::Policy;
use tokio::sync::{oneshot, watch};

use super::Later;
use crate::asking::Asking;
use crate::line::Place;
use crate::tenure::{Keep, Tenure};
use crate::{Error, Key, Nonce, Token, clock, metrics};

/// The time limit of one release call.
const LONGEST_RELEASE: Duration = Duration::from_secs(5);
/// The maximum number of release calls.
const MOST_RELEASES: u32 = 5;

/// A granted lock, and the state that its renewal needs.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) asking: Asking,
    pub(crate) key: Key,
    pub(crate) nonce: Nonce,
    pub(crate) token: Token,
    pub(crate) lease: Duration,
    pub(crate) tenure: Arc<Mutex<Tenure>>,
    /// The policy for retries of a failed renewal.
    pub(crate) policy: Arc<Policy>,
    pub(crate) since: Duration,
    /// The turn in this process's queue, which ends with the lock.
    pub(crate) place: Mutex<Option<Place>>,
    /// The schedule of keepers that are not needed yet.
    pub(crate) later: Later,
}

impl Holding {
    /// Renews the lock until it is stopped, then releases it. It waits for a renewal in flight: a renewal that arrives
    /// after the release would be harmless, but the order of the two would be unknown.
    pub(super) async fn keep(
        self: Arc<Self>,
        mut stopped: oneshot::Receiver<()>,
        lost: watch::Sender<bool>,
    ) -> Result<(), Error> {
        loop {
            let keep = self.tenure().next(clock::now());
            match keep {
                Keep::Wait { until } => tokio::select! {
                    biased;
                    _ = &mut stopped => return self.let_go().await,
                    () = clock::sleep_until(until) => {}
                },
                Keep::Renew { by } => self.renew(by).await,
                Keep::Lost => break,
            }
        }
        lost.send_replace(true);
        metrics::lost(&self.key);
        tracing::warn!(namespace = self.key.namespace(), token = %self.token, "a lock is lost");
        // Other contenders of this process need not wait for the holder that lost the lock.
        self.end_turn();
        _ = stopped.await;
        // The store may still record the lost lock. The release frees it before its lease expires.
        let store = self.asking.store();
        _ = self.asking.insist(LONGEST_RELEASE, store.release(&self.key, self.nonce, self.token)).await;
        self.ended();
        Err(Error::Lost { token: self.token })
    }

    async fn renew(&self, by: Duration) {
        let sent = clock::now();
        let call = self.asking.store().renew(&self.key, self.nonce, self.token, self.lease);
        match self.asking.insist(by.saturating_sub(sent), call).await {
            Ok(true) => self.tenure().renewed(sent),
            Ok(false) => self.tenure().refused(),
            Err(trouble) => {
                metrics::renewal_failed(&self.key);
                tracing::debug!(transient = trouble.error.is_transient(), "a lock was not renewed");
                self.tenure().failed(&self.policy, clock::now(), clock::roll());
            }
        }
    }

    pub(super) async fn let_go(&self) -> Result<(), Error> {
        let mut was_unclear = false;
        for told in 1.. {
            let call = self.asking.store().release(&self.key, self.nonce, self.token);
            match self.asking.insist(LONGEST_RELEASE, call).await {
                Ok(true) => break,
                // An earlier call with an unknown outcome may have released it.
                Ok(false) if was_unclear => break,
                Ok(false) => {
                    self.ended();
                    return Err(Error::Lost { token: self.token });
                }
                Err(trouble) => {
                    let again = self.again(clock::now()).filter(|_| told < MOST_RELEASES);
                    let Some(again) = again.filter(|_| trouble.error.is_transient()) else {
                        self.ended();
                        return Err(trouble.error);
                    };
                    was_unclear = true;
                    clock::sleep_until(again).await;
                }
            }
        }
        self.ended();
        Ok(())
    }

    /// Returns when to call the store again; `None` if the lock is lost by then.
    fn again(&self, now: Duration) -> Option<Duration> {
        let mut tenure = self.tenure();
        tenure.failed(&self.policy, now, clock::roll());
        match tenure.next(now) {
            Keep::Wait { until } => Some(until),
            Keep::Renew { .. } => Some(now),
            Keep::Lost => None,
        }
    }

    fn end_turn(&self) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn ended(&self) {
        self.end_turn();
        metrics::held(&self.key, clock::now().saturating_sub(self.since));
    }

    fn tenure(&self) -> MutexGuard<'_, Tenure> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
