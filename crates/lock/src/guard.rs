//! The guard of a held lock, and the notification of its loss.

mod finish;
mod keeper;
mod later;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::tenure::{Keep, Tenure};
use crate::{Error, Key, Token, clock};

use finish::Finish;
pub(crate) use keeper::Holding;
pub(crate) use later::Later;
use later::Ticket;

/// A held lock. The library renews it in the background and releases it when the guard is dropped.
///
/// The protected resource should check the [token](Self::token): a program that is paused for longer than its lease
/// does not notice it, and its writes arrive late. Work that can be stopped should stop when the lock is
/// [lost](Self::lost); [`run`](Self::run) does that.
#[derive(Debug)]
#[must_use = "a guard that is dropped lets the lock go"]
pub struct Guard {
    key: Key,
    token: Token,
    tenure: Arc<Mutex<Tenure>>,
    lost: watch::Receiver<bool>,
    /// Dropped to stop the keeper, which then releases the lock.
    stop: Option<oneshot::Sender<()>>,
    /// Receives the result of the keeper's release.
    ended: Option<oneshot::Receiver<Result<(), Error>>>,
    /// The ticket of the keeper while it is not started.
    keeper: Ticket,
    holding: Arc<Holding>,
}

impl Guard {
    /// Returns the guard of a granted lock, and schedules the keeper that renews it.
    pub(crate) fn keep(holding: Holding) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (tell_lost, lost) = watch::channel(false);
        let (key, token, tenure) = (holding.key.clone(), holding.token, Arc::clone(&holding.tenure));
        let (end, ended) = oneshot::channel();
        let (holding, now) = (Arc::new(holding), clock::now());
        let first = match tenure.lock().unwrap_or_else(PoisonError::into_inner).next(now) {
            Keep::Wait { until } => until,
            Keep::Renew { .. } | Keep::Lost => now,
        };
        let keeping = Arc::clone(&holding);
        let keeper = holding.later.note(first, async move {
            // The receiver may be dropped already.
            _ = end.send(keeping.keep(stopped, tell_lost).await);
        });
        Self { key, token, tenure, lost, stop: Some(stop), ended: Some(ended), keeper, holding }
    }

    /// Returns the fencing token. Pass it to the resource that the lock protects.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns whether the store cannot have granted the lock to another client. Also correct after a suspension.
    pub fn is_valid(&self) -> bool {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).is_valid(clock::now())
    }

    /// Returns how long the lock stays valid if no renewal succeeds.
    pub fn valid_for(&self) -> Duration {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).valid_for(clock::now())
    }

    /// Completes when the lock is lost, before the store can grant it to another client. Never completes if the lock is
    /// released in time.
    ///
    /// After the machine was suspended it may complete up to a second late. Check [`is_valid`](Self::is_valid) before
    /// an action that cannot be undone.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            // The keeper ended without reporting a loss: the lock was released.
            if lost.wait_for(|lost| *lost).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Runs a future while the lock is held. If the lock is lost, drops the future at its current await point.
    pub async fn run<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        let lost = || Error::Lost { token: self.token };
        if !self.is_valid() {
            return Err(lost());
        }
        tokio::select! {
            biased;
            () = self.lost() => Err(lost()),
            output = future => Ok(output),
        }
    }

    /// Releases the lock, and waits for the store's response.
    ///
    /// [`Error::Lost`] means that the lock was lost before. Any other error means that the store did not confirm the
    /// release; the lease then expires. Cancel-safe: if the future is dropped, the release continues in the background.
    pub async fn release(mut self) -> Result<(), Error> {
        if let Some(let_go) = self.let_go() {
            return let_go.await;
        }
        drop(self.stop.take());
        let Some(ended) = self.ended.take() else { return Ok(()) };
        // A keeper that was stopped with its runtime has released nothing, and this function cannot either.
        ended.await.unwrap_or(Err(Error::Lost { token: self.token }))
    }

    /// Releases the lock without a keeper, if the keeper has not started yet.
    fn let_go(&self) -> Option<Finish<Result<(), Error>>> {
        let holding = Arc::clone(&self.holding);
        holding.later.cancel(self.keeper).then(|| Finish::new(async move { holding.let_go().await }))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The release finishes in the background. A running keeper notices that its guard is dropped.
        drop(self.let_go());
    }
}
