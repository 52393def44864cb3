//! The guard of a held lock: its renewal in the background, its release, and the notification of its loss.

mod schedule;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use holdoff_policy::Policy;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::queue::QueuePosition;
use crate::store_client::StoreClient;
use crate::validity::{HolderAction, Validity};
use crate::{Error, LockKey, Nonce, Token, clock, metrics};

pub(crate) use schedule::RenewalSchedule;
use schedule::ScheduleKey;

/// The time limit of one release call.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of release calls.
const MAX_RELEASES: u32 = 5;

/// A held lock. The library renews it in the background and releases it when the guard is dropped.
///
/// The protected resource should check the [token](Self::token): a program that is paused for longer than its lease
/// does not notice it, and its writes arrive late. Work that can be stopped should stop when the lock is
/// [lost](Self::lost); [`run`](Self::run) does that.
#[derive(Debug)]
#[must_use = "a dropped guard releases the lock"]
pub struct Guard {
    key: LockKey,
    token: Token,
    validity: Arc<Mutex<Validity>>,
    lost: watch::Receiver<bool>,
    /// Dropped to stop the renewal task, which then releases the lock.
    stop: Option<oneshot::Sender<()>>,
    /// Receives the result of the renewal task's release.
    ended: Option<oneshot::Receiver<Result<(), Error>>>,
    /// The key of the renewal task in the schedule, while it is not started.
    renewal: ScheduleKey,
    held: Arc<HeldLock>,
}

impl Guard {
    /// Returns the guard of a granted lock, and schedules the task that renews it.
    pub(crate) fn new(held: HeldLock) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (lost_sender, lost) = watch::channel(false);
        let (key, token, validity) = (held.key.clone(), held.token, Arc::clone(&held.validity));
        let (end, ended) = oneshot::channel();
        let (held, now) = (Arc::new(held), clock::now());
        let first = match validity.lock().next(now) {
            HolderAction::Wait { until } => until,
            HolderAction::Renew { .. } | HolderAction::Lost => now,
        };
        let renewing = Arc::clone(&held);
        let renewal = held.schedule.schedule(first, async move {
            // The receiver may be dropped already.
            _ = end.send(renewing.renew_until_stopped(stopped, lost_sender).await);
        });
        Self { key, token, validity, lost, stop: Some(stop), ended: Some(ended), renewal, held }
    }

    /// Returns the fencing token. Pass it to the resource that the lock protects.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns whether the store cannot have granted the lock to another client. Also correct after a suspension.
    pub fn is_valid(&self) -> bool {
        self.validity.lock().is_valid(clock::now())
    }

    /// Returns how long the lock stays valid if no renewal succeeds.
    pub fn valid_for(&self) -> Duration {
        self.validity.lock().valid_for(clock::now())
    }

    /// Completes when the lock is lost, before the store can grant it to another client. Never completes if the lock is
    /// released in time.
    ///
    /// After the machine was suspended it may complete up to a second late. Check [`is_valid`](Self::is_valid) before
    /// an action that cannot be undone.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            // The renewal task ended without reporting a loss: the lock was released.
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
        if let Some(released) = self.release_now() {
            return released.await;
        }
        drop(self.stop.take());
        let Some(ended) = self.ended.take() else { return Ok(()) };
        // A renewal task that was stopped with its runtime has released nothing, and this function cannot either.
        ended.await.unwrap_or(Err(Error::Lost { token: self.token }))
    }

    /// Releases the lock at once, if the renewal task has not started yet.
    fn release_now(&self) -> Option<RunToCompletion<Result<(), Error>>> {
        let held = Arc::clone(&self.held);
        held.schedule.cancel(self.renewal).then(|| RunToCompletion::new(async move { held.release().await }))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The release finishes in the background. A running renewal task notices that its guard is dropped.
        drop(self.release_now());
    }
}

/// A granted lock, and the state that its renewal needs.
#[derive(Debug)]
pub(crate) struct HeldLock {
    pub(crate) client: StoreClient,
    pub(crate) key: LockKey,
    pub(crate) nonce: Nonce,
    pub(crate) token: Token,
    pub(crate) lease: Duration,
    pub(crate) validity: Arc<Mutex<Validity>>,
    /// The policy for retries of a failed renewal.
    pub(crate) policy: Arc<Policy>,
    pub(crate) since: Duration,
    /// The position in this process's queue, which ends with the lock.
    pub(crate) position: Mutex<Option<QueuePosition>>,
    /// The schedule of renewal tasks that are not needed yet.
    pub(crate) schedule: RenewalSchedule,
}

impl HeldLock {
    /// Renews the lock until it is stopped, then releases it. It waits for a renewal in flight: a renewal that arrives
    /// after the release would be harmless, but the order of the two would be unknown.
    async fn renew_until_stopped(
        self: Arc<Self>,
        mut stopped: oneshot::Receiver<()>,
        lost: watch::Sender<bool>,
    ) -> Result<(), Error> {
        loop {
            let action = self.validity.lock().next(clock::now());
            match action {
                HolderAction::Wait { until } => tokio::select! {
                    biased;
                    _ = &mut stopped => return self.release().await,
                    () = clock::sleep_until(until) => {}
                },
                HolderAction::Renew { by } => self.renew(by).await,
                HolderAction::Lost => break,
            }
        }
        lost.send_replace(true);
        metrics::lost(&self.key);
        tracing::warn!(namespace = self.key.namespace(), token = %self.token, "lost a lock");
        // Other contenders of this process need not wait for the holder that lost the lock.
        self.leave_queue();
        _ = stopped.await;
        // The store may still record the lost lock. The release frees it before its lease expires.
        let store = self.client.store();
        let call = store.release(&self.key, self.nonce, self.token);
        _ = self.client.call_bypassing_breaker(RELEASE_TIMEOUT, call).await;
        self.ended();
        Err(Error::Lost { token: self.token })
    }

    async fn renew(&self, by: Duration) {
        let sent = clock::now();
        let call = self.client.store().renew(&self.key, self.nonce, self.token, self.lease);
        match self.client.call_bypassing_breaker(by.saturating_sub(sent), call).await {
            Ok(true) => self.validity.lock().renewed(sent),
            Ok(false) => self.validity.lock().refused(),
            Err(failed) => {
                metrics::renewal_failed(&self.key);
                tracing::debug!(transient = failed.error.is_transient(), "failed to renew a lock");
                self.validity.lock().failed(&self.policy, clock::now(), clock::roll());
            }
        }
    }

    /// Releases the lock, and retries until the lock would be lost.
    async fn release(&self) -> Result<(), Error> {
        let mut is_unknown = false;
        for attempt in 1.. {
            let call = self.client.store().release(&self.key, self.nonce, self.token);
            match self.client.call_bypassing_breaker(RELEASE_TIMEOUT, call).await {
                Ok(true) => break,
                // An earlier call with an unknown outcome may have released it.
                Ok(false) if is_unknown => break,
                Ok(false) => {
                    self.ended();
                    return Err(Error::Lost { token: self.token });
                }
                Err(failed) => {
                    let next = self.next_release_at(clock::now()).filter(|_| attempt < MAX_RELEASES);
                    let Some(next) = next.filter(|_| failed.error.is_transient()) else {
                        self.ended();
                        return Err(failed.error);
                    };
                    is_unknown = true;
                    clock::sleep_until(next).await;
                }
            }
        }
        self.ended();
        Ok(())
    }

    /// Returns when to call the store again; `None` if the lock is lost by then.
    fn next_release_at(&self, now: Duration) -> Option<Duration> {
        let mut validity = self.validity.lock();
        validity.failed(&self.policy, now, clock::roll());
        match validity.next(now) {
            HolderAction::Wait { until } => Some(until),
            HolderAction::Renew { .. } => Some(now),
            HolderAction::Lost => None,
        }
    }

    fn leave_queue(&self) {
        *self.position.lock() = None;
    }

    fn ended(&self) {
        self.leave_queue();
        metrics::held(&self.key, clock::now().saturating_sub(self.since));
    }
}

/// A future that continues in the background if it is dropped before it is complete.
struct RunToCompletion<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send + 'static> RunToCompletion<T> {
    fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        // Without a runtime the future cannot continue.
        if let (Some(rest), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}
