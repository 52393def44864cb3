//! The task that renews a lock, and lets it go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_policy::Policy;
use tokio::sync::{oneshot, watch};

use super::Later;
use crate::asking::Asking;
use crate::line::Place;
use crate::tenure::{Keep, Tenure};
use crate::{Error, Key, Nonce, Token, clock, metrics};

/// How long a store is given to hear that a lock was let go.
const LONGEST_RELEASE: Duration = Duration::from_secs(5);
/// How often it is told, at most.
const MOST_RELEASES: u32 = 5;

/// A lock that was granted, and all that it takes to keep it.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) asking: Asking,
    pub(crate) key: Key,
    pub(crate) nonce: Nonce,
    pub(crate) token: Token,
    pub(crate) lease: Duration,
    pub(crate) tenure: Arc<Mutex<Tenure>>,
    /// When to try a failed renewal again.
    pub(crate) policy: Arc<Policy>,
    pub(crate) since: Duration,
    /// The turn of this process, which ends with the lock.
    pub(crate) place: Mutex<Option<Place>>,
    /// Where keepers wait until they are needed.
    pub(crate) later: Later,
}

impl Holding {
    /// Renews until it is told to stop, then lets go. A renewal that is under way is waited for: were it to arrive
    /// after the release, nothing bad would come of it, but nobody could say which came first.
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
        // Others of this process need not wait for the one that lost it.
        self.end_turn();
        _ = stopped.await;
        // It was lost in time, but may still stand in the store: then it need not stand until its lease is over.
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
                // An earlier call may have done it.
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

    /// When to tell the store again, if its lease is not over by then.
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
