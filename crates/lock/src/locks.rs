//! The entry point: the locks of one store.

mod acquire;
mod filter;
mod once;
mod open;
mod poll;

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Policy;

use crate::asking::{Asking, Trouble};
use crate::guard::Later;
use crate::line::{Lines, Place};
use crate::store::{LeaseStore, Result};
use crate::{Error, Guard, Holder, Key, Lease, LockRecord, Settings, clock, settings, tenure};

pub use acquire::Acquire;
pub use filter::Filter;
pub use once::{MakeOnce, Once, OnceError};
pub use poll::Polled;

/// The time limit of a store call that is not part of an acquisition.
const LIMIT: Duration = Duration::from_secs(30);

/// The locks of one store. Cheap to clone. All users of a store in one process should share clones of one value.
///
/// ```
/// use holdoff_lock::Locks;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), holdoff_lock::Error> {
/// let locks = Locks::memory();
/// let guard = locks.acquire("invoice 7").await?;
/// // Whatever the lock protects is given guard.token(), and refuses lower ones.
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) asking: Asking,
    pub(crate) settings: Settings,
    pub(crate) policy: Arc<Policy>,
    /// The policy for retries of a failed renewal.
    pub(crate) renewals: Arc<Policy>,
    pub(crate) lines: Lines,
    pub(crate) polls: poll::Polls,
    pub(crate) later: Later,
}

impl Locks {
    /// Returns the locks of this store.
    pub(crate) fn over(store: Arc<dyn LeaseStore>) -> Self {
        let settings = Settings::default();
        let asking = Asking::new(store, settings.breaker.clone());
        Self::assemble(asking, settings, Lines::default(), poll::Polls::default())
    }

    fn assemble(asking: Asking, settings: Settings, lines: Lines, polls: poll::Polls) -> Self {
        let policy = Arc::new(settings.policy());
        let renewals = Arc::new(Policy::preset("lock-aggressive").unwrap_or_default());
        let later = Later::default();
        Self { shared: Arc::new(Shared { asking, settings, policy, renewals, lines, polls, later }) }
    }

    /// Returns the same locks with other settings.
    pub fn with_settings(&self, settings: Settings) -> Result<Self> {
        settings.check()?;
        let Shared { asking, lines, polls, .. } = &*self.shared;
        let asking = if settings.breaker == self.shared.settings.breaker {
            asking.clone()
        } else {
            asking.behind(settings.breaker.clone())
        };
        Ok(Self::assemble(asking, settings, lines.clone(), polls.clone()))
    }

    /// Returns the same locks with another default namespace for keys.
    pub fn with_namespace(&self, namespace: impl Into<String>) -> Result<Self> {
        let settings = self.shared.settings.clone().with_namespace(namespace);
        Key::new(&settings.namespace, "any")?;
        let Shared { asking, lines, polls, .. } = &*self.shared;
        Ok(Self::assemble(asking.clone(), settings, lines.clone(), polls.clone()))
    }

    /// Acquires a lock, and waits for it as long as the policy allows: `locks.acquire(key).await`.
    pub fn acquire(&self, key: impl AsRef<[u8]>) -> Acquire {
        Acquire::new(self.clone(), key.as_ref().to_owned())
    }

    /// Acquires a lock if it is free now; returns `None` if it is not.
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Option<Guard>> {
        self.acquire(key).at_once().await
    }

    /// Asks for a lock without waiting, and returns when to poll again if it is not free. For controllers that must not
    /// sleep. Between polls the process keeps its place among the waiters, and the time since which it waits.
    pub async fn poll(&self, key: impl AsRef<[u8]>) -> Result<Polled> {
        self.acquire(key).poll().await
    }

    /// Creates a value once, for any number of callers. While the caller waits for the lock, `probe` checks whether
    /// another caller has created the value. When it has the lock, it probes again, and then calls `create`.
    ///
    /// `create` receives the token and must itself be idempotent: the lock is the optimisation, `create` the guarantee.
    pub fn once<T, E, P, PF, C, CF>(&self, key: impl AsRef<[u8]>, probe: P, create: C) -> MakeOnce<P, C>
    where
        P: FnMut() -> PF,
        PF: Future<Output = std::result::Result<Option<T>, E>>,
        C: FnOnce(Option<crate::Token>) -> CF,
        CF: Future<Output = std::result::Result<T, E>>,
    {
        self.acquire(key).once(probe, create)
    }

    /// Extends a detached lock to last for `lasts` from now. Returns how long the store cannot grant it to another
    /// client. Fails with [`Error::Lost`] if another client holds the lock, or it is free.
    pub async fn renew(&self, lease: &Lease, lasts: Duration) -> Result<Duration> {
        settings::check_lease(lasts)?;
        let sent = clock::now();
        let call = self.store().renew(lease.key(), lease.nonce(), lease.token(), lasts);
        if self.insist(call).await? {
            return Ok(tenure::valid_until(sent, lasts).saturating_sub(clock::now()));
        }
        Err(Error::Lost { token: lease.token() })
    }

    /// Releases a detached lock. Fails with [`Error::Lost`] if another client holds the lock, or it is free, also
    /// because it was released before.
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        let call = self.store().release(lease.key(), lease.nonce(), lease.token());
        if self.insist(call).await? { Ok(()) } else { Err(Error::Lost { token: lease.token() }) }
    }

    /// Returns the default settings of acquisitions.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns the state of a lock; `None` if it was never held, or has been pruned.
    pub async fn inspect(&self, key: impl AsRef<[u8]>) -> Result<Option<LockRecord>> {
        let key = self.key(key)?;
        self.call(self.store().read(&key)).await
    }

    /// Returns locks, ordered by namespace and key.
    pub async fn list(&self, filter: &Filter) -> Result<Vec<LockRecord>> {
        let listing = filter.listing();
        self.call(self.store().list(&listing)).await
    }

    /// Force-releases a lock and raises its token, so that writes of the previous holder are rejected from now on.
    /// Returns the previous holder, if there was one.
    pub async fn force_release(&self, key: impl AsRef<[u8]>) -> Result<Option<Holder>> {
        let key = self.key(key)?;
        self.call(self.store().force_release(&key)).await
    }

    /// Raises the fencing epoch of the store. Call it after a restore from a backup. Returns the new epoch.
    pub async fn raise_era(&self) -> Result<u64> {
        self.call(self.store().raise_era()).await
    }

    /// Prunes at most `limit` locks that were neither held nor requested for `idle_for`. Returns the number pruned.
    pub async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.call(self.store().prune(idle_for, limit)).await
    }

    fn key(&self, key: impl AsRef<[u8]>) -> Result<Key> {
        Ok(Key::new(&self.shared.settings.namespace, key)?)
    }

    fn store(&self) -> &dyn LeaseStore {
        self.shared.asking.store()
    }

    /// Makes a holder's call, regardless of the breaker.
    async fn insist<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.shared.asking.insist(LIMIT, call).await.map_err(|Trouble { error, .. }| error)
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.shared.asking.call(LIMIT, call).await.map_err(|Trouble { error, .. }| error)
    }
}

impl Shared {
    /// Returns the place at the head of the queue, if the queue of this process is empty.
    fn first_place(&self, key: &Key) -> Option<Place> {
        self.lines.join(key, self.settings.most_waiters).ok().filter(Place::is_my_turn)
    }
}
