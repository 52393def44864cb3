//! The door: locks on one store.

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

/// How long a store is given for what is no acquisition.
const LIMIT: Duration = Duration::from_secs(30);

/// Locks on one store. Cheap to clone; everybody in a process who uses the same store should use clones of one.
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
    /// When to try a failed renewal again.
    pub(crate) renewals: Arc<Policy>,
    pub(crate) lines: Lines,
    pub(crate) polls: poll::Polls,
    pub(crate) later: Later,
}

impl Locks {
    /// Locks that this store keeps.
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

    /// The same locks with other settings.
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

    /// The same locks with another namespace for keys for which none is given.
    pub fn with_namespace(&self, namespace: impl Into<String>) -> Result<Self> {
        let settings = self.shared.settings.clone().with_namespace(namespace);
        Key::new(&settings.namespace, "any")?;
        let Shared { asking, lines, polls, .. } = &*self.shared;
        Ok(Self::assemble(asking.clone(), settings, lines.clone(), polls.clone()))
    }

    /// Acquires a lock, waiting for it as long as the policy allows: `locks.acquire(key).await`.
    pub fn acquire(&self, key: impl AsRef<[u8]>) -> Acquire {
        Acquire::new(self.clone(), key.as_ref().to_owned())
    }

    /// Acquires a lock if it is free now; nothing if it is not.
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Option<Guard>> {
        self.acquire(key).at_once().await
    }

    /// Asks for a lock without waiting, and says when to come back if it is not free: for controllers that must not
    /// sleep. Between polls it is remembered that this process waits, and since when.
    pub async fn poll(&self, key: impl AsRef<[u8]>) -> Result<Polled> {
        self.acquire(key).poll().await
    }

    /// Makes something once, however many want it: looks with `probe` whether somebody made it while it waits for
    /// the lock, and again when it has it; then makes it with `create`.
    ///
    /// `create` is given the token, and must itself be idempotent: the lock is the optimisation, `create` the guarantee.
    pub fn once<T, E, P, PF, C, CF>(&self, key: impl AsRef<[u8]>, probe: P, create: C) -> MakeOnce<P, C>
    where
        P: FnMut() -> PF,
        PF: Future<Output = std::result::Result<Option<T>, E>>,
        C: FnOnce(Option<crate::Token>) -> CF,
        CF: Future<Output = std::result::Result<T, E>>,
    {
        self.acquire(key).once(probe, create)
    }

    /// Makes a lock that was handed over last for so long from now. Answers for how long nobody else can be granted
    /// it; [`Error::Lost`] if it is another's, or nobody's.
    pub async fn renew(&self, lease: &Lease, lasts: Duration) -> Result<Duration> {
        settings::check_lease(lasts)?;
        let sent = clock::now();
        let call = self.store().renew(lease.key(), lease.nonce(), lease.token(), lasts);
        if self.insist(call).await? {
            return Ok(tenure::valid_until(sent, lasts).saturating_sub(clock::now()));
        }
        Err(Error::Lost { token: lease.token() })
    }

    /// Lets go of a lock that was handed over. [`Error::Lost`] says that it was another's, or nobody's: also if it
    /// was let go before.
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        let call = self.store().release(lease.key(), lease.nonce(), lease.token());
        if self.insist(call).await? { Ok(()) } else { Err(Error::Lost { token: lease.token() }) }
    }

    /// What these locks are like unless an acquisition says otherwise.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// What is known of a lock; nothing if it was never held, or is forgotten.
    pub async fn inspect(&self, key: impl AsRef<[u8]>) -> Result<Option<LockRecord>> {
        let key = self.key(key)?;
        self.call(self.store().read(&key)).await
    }

    /// Locks, by namespace and key.
    pub async fn list(&self, filter: &Filter) -> Result<Vec<LockRecord>> {
        let listing = filter.listing();
        self.call(self.store().list(&listing)).await
    }

    /// Takes a lock from whoever has it, raising the token, so that its writes are refused from now on. Answers who
    /// had it; nothing if nobody.
    pub async fn force_release(&self, key: impl AsRef<[u8]>) -> Result<Option<Holder>> {
        let key = self.key(key)?;
        self.call(self.store().force_release(&key)).await
    }

    /// Raises the era of the store: to be called when it was restored from a backup. Answers the new one.
    pub async fn raise_era(&self) -> Result<u64> {
        self.call(self.store().raise_era()).await
    }

    /// Forgets at most `limit` locks that nobody has held or asked for since so long. Answers how many.
    pub async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.call(self.store().prune(idle_for, limit)).await
    }

    fn key(&self, key: impl AsRef<[u8]>) -> Result<Key> {
        Ok(Key::new(&self.shared.settings.namespace, key)?)
    }

    fn store(&self) -> &dyn LeaseStore {
        self.shared.asking.store()
    }

    /// For those who hold a lock: the breaker does not keep them from it.
    async fn insist<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.shared.asking.insist(LIMIT, call).await.map_err(|Trouble { error, .. }| error)
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.shared.asking.call(LIMIT, call).await.map_err(|Trouble { error, .. }| error)
    }
}

impl Shared {
    /// A place at the head of the line, if nobody of this process is there.
    fn first_place(&self, key: &Key) -> Option<Place> {
        self.lines.join(key, self.settings.most_waiters).ok().filter(Place::is_my_turn)
    }
}
