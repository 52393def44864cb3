//! The gateway for signals: it deduplicates them, so that many equal signals create one task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_lock::{OnceError, Token};
use holdoff_work::{Fingerprint, Signalled, Task, Work};
use tokio::sync::{OnceCell, Semaphore};

use crate::claims::{Claims, Found};
use crate::locking::Locking;
use crate::metrics;
use crate::problem::{Kind, Problem, spread};

/// The timeout of a whole request: the sender of a signal has its response by then.
const LONGEST_ANSWER: Duration = Duration::from_millis(9_500);

/// The gateway for signals.
pub(crate) struct Gateway {
    tasks: Tasks,
    locking: Locking,
    wait: Duration,
    /// The permits for further waiters.
    room: Semaphore,
    most_waiters: usize,
    looks: Looks,
}

/// The tasks of signals, on this daemon and on others.
#[derive(Clone)]
struct Tasks {
    work: Work,
    /// The claims by which daemons without a shared store agree which of them has the task.
    claims: Option<Claims>,
}

/// The lookups in progress, by namespace and fingerprint. Each one's value is whether it found no task.
type Looks = Mutex<ByKey>;
type ByKey = HashMap<(String, Fingerprint), Arc<OnceCell<bool>>>;

/// A lookup in progress. When it ends, also because its client disconnected, the next signal starts a new lookup.
struct UnderWay<'a> {
    looks: &'a Looks,
    key: (String, Fingerprint),
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(self.looks).remove(&self.key);
    }
}

fn lock(looks: &Looks) -> MutexGuard<'_, ByKey> {
    looks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A signal.
pub(crate) struct Signal {
    pub(crate) namespace: String,
    pub(crate) fingerprint: Fingerprint,
    /// The task to create for it.
    pub(crate) task: Task,
}

impl Gateway {
    pub(crate) fn new(work: Work, locking: Locking) -> Self {
        let signals = work.settings().signals;
        Self {
            tasks: Tasks { work, claims: locking.claims().cloned() },
            locking,
            wait: signals.wait,
            room: Semaphore::new(signals.max_waiters.min(Semaphore::MAX_PERMITS)),
            most_waiters: signals.max_waiters,
            looks: Looks::default(),
        }
    }

    /// Accepts a signal. Cancel-safe: if the future is dropped, the wait ends and leaves no waiter behind.
    pub(crate) async fn take_in(&self, signal: Signal) -> Result<Found, Problem> {
        let taken = tokio::time::timeout(LONGEST_ANSWER, self.once(signal)).await.unwrap_or_else(|_| {
            Err(Problem::unavailable("the store did not answer in time; the signal may be sent again"))
        });
        metrics::signalled(match &taken {
            Ok((Signalled::Created(_), _)) => "created",
            Ok(_) => "duplicate",
            Err(_) => "refused",
        });
        taken
    }

    /// If the task is already live, one statement counts the signal. Otherwise one of the concurrent senders creates
    /// the task, and the others look for it while they wait. The lock only reduces the load on the store: the creation
    /// itself is idempotent, and proceeds without the lock if the lock is not granted in time.
    async fn once(&self, Signal { namespace, fingerprint, task }: Signal) -> Result<Found, Problem> {
        if let Some(signalled) = self.look(&namespace, fingerprint).await? {
            return Ok((self.tasks.count_here(&namespace, fingerprint, signalled).await, None));
        }
        if let Some(found) = self.tasks.look_elsewhere(&namespace, fingerprint).await {
            return Ok(found);
        }
        let Ok(_room) = self.room.try_acquire() else { return Err(self.crowded()) };
        // The first probe can be skipped: the lookup has just been done.
        let mut has_looked = true;
        let probe = {
            let (tasks, namespace) = (self.tasks.clone(), namespace.clone());
            move || {
                let look = !std::mem::take(&mut has_looked);
                let (tasks, namespace) = (tasks.clone(), namespace.clone());
                async move { if look { tasks.look_again(&namespace, fingerprint).await } else { Ok(None) } }
            }
        };
        let create = {
            let (tasks, namespace) = (self.tasks.clone(), namespace.clone());
            move |_: Option<Token>| async move { tasks.make(&namespace, fingerprint, task).await }
        };
        let Ok(locks) = self.locking.here().await else { return create(None).await };
        if !self.tasks.can_ask_within(self.wait).await {
            return create(None).await;
        }
        let acquire = locks.acquire(format!("signal:{fingerprint}")).namespace(namespace).wait(self.wait);
        match acquire.once(probe, create).or_create_anyway().await {
            Ok(once) => Ok(once.into_inner()),
            Err(OnceError::Probe(problem) | OnceError::Create(problem)) => Err(problem),
            Err(OnceError::Lock(holdoff_lock::Error::Lost { .. })) => {
                Err(Problem::unavailable("the task may have been made; the signal may be sent again"))
            }
            Err(OnceError::Lock(error)) => Err(error.into()),
        }
    }

    /// Counts the signal if its task is live. Of many concurrent signals one performs the lookup. If it finds no task,
    /// the others skip theirs.
    async fn look(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<Signalled>, Problem> {
        let key = (namespace.to_owned(), fingerprint);
        let look = Arc::clone(lock(&self.looks).entry(key.clone()).or_default());
        let mut found = None;
        let is_nothing = look.get_or_try_init(|| async {
            let _under_way = UnderWay { looks: &self.looks, key };
            found = self.tasks.work.signal_again(namespace, fingerprint).await?;
            Ok::<_, Problem>(found.is_none())
        });
        match (*is_nothing.await?, found) {
            (_, Some(found)) => Ok(Some(found)),
            (true, None) => Ok(None),
            (false, None) => Ok(self.tasks.work.signal_again(namespace, fingerprint).await?),
        }
    }

    fn crowded(&self) -> Problem {
        let detail =
            format!("{} signals wait in this daemon already (signals.max_waiters)", self.most_waiters);
        Problem::new(Kind::TooManyWaiters, detail).retry_after(spread())
    }
}

impl Tasks {
    async fn make(&self, namespace: &str, fingerprint: Fingerprint, task: Task) -> Result<Found, Problem> {
        match &self.claims {
            Some(claims) => claims.make(namespace, fingerprint, task).await,
            None => Ok((self.work.signal(fingerprint, task).await?, None)),
        }
    }

    async fn look_again(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<Found>, Problem> {
        if let Some(signalled) = self.work.signal_again(namespace, fingerprint).await? {
            return Ok(Some((self.count_here(namespace, fingerprint, signalled).await, None)));
        }
        Ok(self.look_elsewhere(namespace, fingerprint).await)
    }

    /// Counts the signal if its task is live on another daemon.
    async fn look_elsewhere(&self, namespace: &str, fingerprint: Fingerprint) -> Option<Found> {
        self.claims.as_ref()?.look(namespace, fingerprint).await
    }

    /// Returns whether the daemons that may have the task can be asked within `wait`, or whether there are none.
    async fn can_ask_within(&self, wait: Duration) -> bool {
        match &self.claims {
            Some(claims) => claims.is_led_within(wait).await,
            None => true,
        }
    }

    /// Counts a signal whose task is live on this daemon in the count that all daemons share.
    async fn count_here(&self, namespace: &str, fingerprint: Fingerprint, found: Signalled) -> Signalled {
        match &self.claims {
            Some(claims) => claims.count_here(namespace, fingerprint, found).await,
            None => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use holdoff_lock::Settings;
    use holdoff_policy::PolicySet;

    use super::*;
    use crate::Place;

    #[tokio::test]
    async fn a_look_whose_client_went_away_is_forgotten() {
        let work = Work::open("sqlite::memory:", PolicySet::default()).await.unwrap();
        let locking = Locking::open(&Place::store("sqlite::memory:"), &work, None, Settings::default(), None)
            .await
            .unwrap();
        let gateway = Gateway::new(work, locking);
        let fingerprint = Fingerprint::of(["a"]);
        let mut look = Box::pin(gateway.look("default", fingerprint));
        // The lookup has to wait for the store.
        let begun = std::future::poll_fn(|cx| Poll::Ready(look.as_mut().poll(cx))).await;
        assert!(begun.is_pending() && !lock(&gateway.looks).is_empty());
        drop(look);
        assert!(lock(&gateway.looks).is_empty());
        assert!(gateway.look("default", fingerprint).await.unwrap().is_none());
    }
}
