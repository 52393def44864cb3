//! What a holder has, and how it is lost.

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

/// A lock that is held. It is renewed in the background, and let go when this is dropped.
///
/// Whatever the lock protects should look at the [token](Self::token): a program that is paused for longer than its
/// lease does not know it, and its writes come late. Everything that can be stopped should stop when the lock is
/// [lost](Self::lost); [`run`](Self::run) does that.
#[derive(Debug)]
#[must_use = "a guard that is dropped lets the lock go"]
pub struct Guard {
    key: Key,
    token: Token,
    tenure: Arc<Mutex<Tenure>>,
    lost: watch::Receiver<bool>,
    /// Dropped to stop the keeper, which then lets go.
    stop: Option<oneshot::Sender<()>>,
    /// What the keeper says when it has let go.
    ended: Option<oneshot::Receiver<Result<(), Error>>>,
    /// The keeper, as long as it is not needed.
    keeper: Ticket,
    holding: Arc<Holding>,
}

impl Guard {
    /// Starts to keep what was granted.
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
            // Nobody may be there to hear it.
            _ = end.send(keeping.keep(stopped, tell_lost).await);
        });
        Self { key, token, tenure, lost, stop: Some(stop), ended: Some(ended), keeper, holding }
    }

    /// The fencing token: give it to whatever the lock protects.
    pub fn token(&self) -> Token {
        self.token
    }

    /// What is locked.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether nobody else can have been granted the lock. Right also after the machine was suspended.
    pub fn is_valid(&self) -> bool {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).is_valid(clock::now())
    }

    /// How long that will stay so if no renewal succeeds.
    pub fn valid_for(&self) -> Duration {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).valid_for(clock::now())
    }

    /// Completes when the lock is lost, before anybody else can have been granted it; never, if it is let go in time.
    ///
    /// After the machine was suspended it may take a second: ask [`is_valid`](Self::is_valid) before something that
    /// cannot be undone.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            // The keeper is gone without having said so: the lock was let go.
            if lost.wait_for(|lost| *lost).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Runs this as long as the lock is held: when it is lost, the future is dropped where it stands.
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

    /// Lets go, and waits until the store has it.
    ///
    /// [`Error::Lost`] says that the lock was lost before; any other error that the store could not be told, in which
    /// case the lease ends by itself.
    pub async fn release(mut self) -> Result<(), Error> {
        if let Some(let_go) = self.let_go() {
            return let_go.await;
        }
        drop(self.stop.take());
        let Some(ended) = self.ended.take() else { return Ok(()) };
        // A keeper that was stopped with its runtime has told nobody, and nor could this.
        ended.await.unwrap_or(Err(Error::Lost { token: self.token }))
    }

    /// Lets go without a keeper, if none was needed yet.
    fn let_go(&self) -> Option<Finish<Result<(), Error>>> {
        let holding = Arc::clone(&self.holding);
        holding.later.cancel(self.keeper).then(|| Finish::new(async move { holding.let_go().await }))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Begun or not, it is finished in the background; a keeper hears that its guard is gone.
        drop(self.let_go());
    }
}
