//! The gateway for signals: it deduplicates them, so that many equal signals create one task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use holdoff_lock::{OnceError, Token};
use holdoff_work::{Fingerprint, Signalled, Task, Work};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};

use crate::claims::{Claims, SignalResult};
use crate::locking::Locking;
use crate::metrics;
use crate::problem::{Kind, Problem, jittered_retry_after};

/// The timeout of a whole request: the sender of a signal has its response by then.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(9_500);

/// The gateway for signals.
pub(crate) struct Gateway {
    tasks: Tasks,
    locking: Locking,
    wait: Duration,
    /// The permits for further waiters.
    permits: Semaphore,
    max_waiters: usize,
    lookups: Lookups,
}

/// The tasks of signals, on this daemon and on others.
#[derive(Clone)]
struct Tasks {
    work: Work,
    /// The claims by which daemons without a shared store agree which of them has the task.
    claims: Option<Claims>,
}

/// The lookups in progress, by namespace and fingerprint. Each one's value is whether it found no task.
type Lookups = Mutex<ByKey>;
type ByKey = HashMap<(String, Fingerprint), Arc<OnceCell<bool>>>;

/// A lookup in progress. When it ends, also because its client disconnected, the next signal starts a new lookup.
struct LookupGuard<'a> {
    lookups: &'a Lookups,
    key: (String, Fingerprint),
}

impl Drop for LookupGuard<'_> {
    fn drop(&mut self) {
        self.lookups.lock().remove(&self.key);
    }
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
            permits: Semaphore::new(signals.max_waiters.min(Semaphore::MAX_PERMITS)),
            max_waiters: signals.max_waiters,
            lookups: Lookups::default(),
        }
    }

    /// Accepts a signal. Cancel-safe: if the future is dropped, the wait ends and leaves no waiter behind.
    pub(crate) async fn accept(&self, signal: Signal) -> Result<SignalResult, Problem> {
        let result = tokio::time::timeout(RESPONSE_TIMEOUT, self.once(signal)).await.unwrap_or_else(|_| {
            Err(Problem::unavailable("the store did not answer in time; send the signal again"))
        });
        metrics::record_signal(match &result {
            Ok((Signalled::Created(_), _)) => "created",
            Ok(_) => "duplicate",
            Err(_) => "refused",
        });
        result
    }

    /// If the task is already live, one statement counts the signal. Otherwise one of the concurrent senders creates
    /// the task, and the others look for it while they wait. The lock only reduces the load on the store: the creation
    /// itself is idempotent, and proceeds without the lock if the lock is not granted in time.
    async fn once(&self, Signal { namespace, fingerprint, task }: Signal) -> Result<SignalResult, Problem> {
        if let Some(signalled) = self.look_up(&namespace, fingerprint).await? {
            return Ok((self.tasks.count_local(&namespace, fingerprint, signalled).await, None));
        }
        if let Some(found) = self.tasks.count_remote(&namespace, fingerprint).await {
            return Ok(found);
        }
        let Ok(_permit) = self.permits.try_acquire() else { return Err(self.too_many_waiters()) };
        // The first probe can be skipped: the lookup has just been done.
        let mut skip_probe = true;
        let probe = {
            let (tasks, namespace) = (self.tasks.clone(), namespace.clone());
            move || {
                let skip = std::mem::take(&mut skip_probe);
                let (tasks, namespace) = (tasks.clone(), namespace.clone());
                async move { if skip { Ok(None) } else { tasks.count_again(&namespace, fingerprint).await } }
            }
        };
        let create = {
            let (tasks, namespace) = (self.tasks.clone(), namespace.clone());
            move |_: Option<Token>| async move { tasks.create(&namespace, fingerprint, task).await }
        };
        let Ok(locks) = self.locking.locks().await else { return create(None).await };
        if !self.tasks.is_available_within(self.wait).await {
            return create(None).await;
        }
        let acquire = locks.acquire(format!("signal:{fingerprint}")).namespace(namespace).wait(self.wait);
        match acquire.once(probe, create).or_create_anyway().await {
            Ok(once) => Ok(once.into_inner()),
            Err(OnceError::Probe(problem) | OnceError::Create(problem)) => Err(problem),
            Err(OnceError::Lock(holdoff_lock::Error::Lost { .. })) => {
                Err(Problem::unavailable("the task may have been created; send the signal again"))
            }
            Err(OnceError::Lock(error)) => Err(error.into()),
        }
    }

    /// Counts the signal if its task is live. Of many concurrent signals one performs the lookup. If it finds no task,
    /// the others skip theirs.
    async fn look_up(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<Signalled>, Problem> {
        let key = (namespace.to_owned(), fingerprint);
        let lookup = Arc::clone(self.lookups.lock().entry(key.clone()).or_default());
        let mut found = None;
        let has_no_task = lookup.get_or_try_init(|| async {
            let _guard = LookupGuard { lookups: &self.lookups, key };
            found = self.tasks.work.signal_again(namespace, fingerprint).await?;
            Ok::<_, Problem>(found.is_none())
        });
        match (*has_no_task.await?, found) {
            (_, Some(found)) => Ok(Some(found)),
            (true, None) => Ok(None),
            (false, None) => Ok(self.tasks.work.signal_again(namespace, fingerprint).await?),
        }
    }

    fn too_many_waiters(&self) -> Problem {
        let detail =
            format!("{} signals already wait in this daemon (signals.max_waiters)", self.max_waiters);
        Problem::new(Kind::TooManyWaiters, detail).retry_after(jittered_retry_after())
    }
}

impl Tasks {
    async fn create(
        &self,
        namespace: &str,
        fingerprint: Fingerprint,
        task: Task,
    ) -> Result<SignalResult, Problem> {
        match &self.claims {
            Some(claims) => claims.create(namespace, fingerprint, task).await,
            None => Ok((self.work.signal(fingerprint, task).await?, None)),
        }
    }

    async fn count_again(
        &self,
        namespace: &str,
        fingerprint: Fingerprint,
    ) -> Result<Option<SignalResult>, Problem> {
        if let Some(signalled) = self.work.signal_again(namespace, fingerprint).await? {
            return Ok(Some((self.count_local(namespace, fingerprint, signalled).await, None)));
        }
        Ok(self.count_remote(namespace, fingerprint).await)
    }

    /// Counts the signal if its task is live on another daemon.
    async fn count_remote(&self, namespace: &str, fingerprint: Fingerprint) -> Option<SignalResult> {
        self.claims.as_ref()?.count_remote(namespace, fingerprint).await
    }

    /// Returns whether the daemons that may have the task can be asked within `wait`, or whether there are none.
    async fn is_available_within(&self, wait: Duration) -> bool {
        match &self.claims {
            Some(claims) => claims.has_leader_within(wait).await,
            None => true,
        }
    }

    /// Counts a signal whose task is live on this daemon in the count that all daemons share.
    async fn count_local(&self, namespace: &str, fingerprint: Fingerprint, found: Signalled) -> Signalled {
        match &self.claims {
            Some(claims) => claims.count_local(namespace, fingerprint, found).await,
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
    use crate::StoreUrl;

    #[tokio::test]
    async fn a_cancelled_lookup_is_removed() {
        let work = Work::open("sqlite::memory:", PolicySet::default()).await.unwrap();
        let locking =
            Locking::open(&StoreUrl::new("sqlite::memory:"), &work, None, Settings::default(), None)
                .await
                .unwrap();
        let gateway = Gateway::new(work, locking);
        let fingerprint = Fingerprint::of(["a"]);
        let mut look_up = Box::pin(gateway.look_up("default", fingerprint));
        // The lookup has to wait for the store.
        let begun = std::future::poll_fn(|cx| Poll::Ready(look_up.as_mut().poll(cx))).await;
        assert!(begun.is_pending() && !gateway.lookups.lock().is_empty());
        drop(look_up);
        assert!(gateway.lookups.lock().is_empty());
        assert!(gateway.look_up("default", fingerprint).await.unwrap().is_none());
    }
}
