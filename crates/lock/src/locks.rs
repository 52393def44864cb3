//! The entry point: the locks of one store, their constructors, and the filter of a listing.

mod acquire;
mod once;
mod poll;

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Policy;

use crate::guard::RenewalSchedule;
use crate::queue::{LocalQueues, QueuePosition};
use crate::store::{LeaseStore, ListCursor, ListQuery, Result};
use crate::store_client::{CallError, StoreClient};
use crate::{
    Error, Guard, Holder, Lease, LockKey, LockRecord, Settings, Token, clock, engine, settings, validity,
};

pub use acquire::Acquire;
pub use once::{CreateOnce, Once, OnceError};
pub use poll::Polled;

/// The time limit of a store call that is not part of an acquisition.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The locks of one store. Cheap to clone. All users of a store in one process should share clones of one value.
///
/// ```
/// use holdoff_lock::Locks;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), holdoff_lock::Error> {
/// let locks = Locks::memory();
/// let guard = locks.acquire("invoice 7").await?;
/// // Pass guard.token() to the protected resource, which rejects lower tokens.
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: StoreClient,
    pub(crate) settings: Settings,
    pub(crate) policy: Arc<Policy>,
    /// The policy for retries of a failed renewal.
    pub(crate) renewals: Arc<Policy>,
    pub(crate) queues: LocalQueues,
    pub(crate) polls: poll::PollStates,
    pub(crate) schedule: RenewalSchedule,
}

/// Constructors, one for each store.
impl Locks {
    /// Returns locks in this process's memory.
    pub fn memory() -> Self {
        Self::with_store(Arc::new(engine::memory::MemoryStore::new()))
    }

    /// Returns locks in a SQLite file, for all processes of one machine.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(path: impl AsRef<std::path::Path>) -> Result<Self> {
        Self::open(&format!("sqlite:{}", path.as_ref().display())).await
    }

    /// Returns locks in Postgres, for all clients of the database.
    #[cfg(feature = "postgres")]
    pub async fn postgres(url: &str) -> Result<Self> {
        Ok(Self::with_store(Arc::new(engine::postgres::PostgresStore::open(url).await?)))
    }

    /// Returns locks kept as Leases in a namespace of a Kubernetes cluster.
    #[cfg(feature = "kubernetes")]
    pub fn kubernetes(client: kube::Client, namespace: &str) -> Self {
        Self::with_store(Arc::new(engine::kubernetes::KubernetesStore::open(client, namespace)))
    }

    /// Returns locks in a ledger, for all its members. They need no store except their own disks.
    ///
    /// All clients that share these locks must use the same ledger. Locks that are held through a node are lost when
    /// the node stops.
    ///
    /// ```
    /// use holdoff_ledger::runtime::{Host, Settings};
    /// use holdoff_lock::Locks;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let mut settings = Settings::new(folder.path());
    /// # settings.listen = "127.0.0.1:0".parse()?;
    /// settings.name = Some("first".to_owned());
    /// let host = Host::start(settings).await?;
    /// let node = host.create("default")?; // the other nodes join it
    ///
    /// let locks = Locks::ledger(node);
    /// let guard = locks.acquire("invoice 7").await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "ledger")]
    pub fn ledger(node: holdoff_ledger::runtime::Node<holdoff_ledger::runtime::DefaultMachine>) -> Self {
        Self::with_store(Arc::new(engine::ledger::LedgerStore::new(Box::new(node))))
    }

    /// Returns locks in a ledger whose node may not have joined yet. Every call looks the node up. While there is none,
    /// the store of these locks cannot be reached.
    #[cfg(feature = "ledger")]
    pub fn ledger_with_lookup<F>(find: F) -> Self
    where
        F: Fn() -> Option<holdoff_ledger::runtime::Node<holdoff_ledger::runtime::DefaultMachine>>
            + Send
            + Sync
            + 'static,
    {
        Self::with_store(Arc::new(engine::ledger::LedgerStore::new(Box::new(
            engine::ledger::NodeLookup::new(find),
        ))))
    }

    /// Opens locks at `memory:`, `sqlite:FILE`, `postgres://…`, or `kubernetes:NAMESPACE` in the cluster that this
    /// process runs in or that its kubeconfig names.
    pub async fn open(url: &str) -> Result<Self> {
        let store: Arc<dyn LeaseStore> = match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("memory") => Arc::new(engine::memory::MemoryStore::new()),
            #[cfg(feature = "sqlite")]
            Some("sqlite") => Arc::new(engine::sqlite::SqliteStore::open(url).await?),
            #[cfg(feature = "postgres")]
            Some("postgres" | "postgresql") => Arc::new(engine::postgres::PostgresStore::open(url).await?),
            #[cfg(feature = "kubernetes")]
            Some("kubernetes") => Arc::new(engine::kubernetes::KubernetesStore::connect(url).await?),
            _ => return Err(unknown_store(url)),
        };
        Ok(Self::with_store(store))
    }
}

impl Locks {
    /// Returns the locks of this store.
    pub(crate) fn with_store(store: Arc<dyn LeaseStore>) -> Self {
        let settings = Settings::default();
        let client = StoreClient::new(store, settings.breaker.clone());
        Self::assemble(client, settings, LocalQueues::default(), poll::PollStates::default())
    }

    fn assemble(
        client: StoreClient,
        settings: Settings,
        queues: LocalQueues,
        polls: poll::PollStates,
    ) -> Self {
        let policy = Arc::new(settings.policy());
        let renewals = Arc::new(Policy::preset("lock-aggressive").unwrap_or_default());
        let schedule = RenewalSchedule::default();
        Self { shared: Arc::new(Shared { client, settings, policy, renewals, queues, polls, schedule }) }
    }

    /// Returns the same locks with other settings.
    pub fn with_settings(&self, settings: Settings) -> Result<Self> {
        settings.check()?;
        let Shared { client, queues, polls, .. } = &*self.shared;
        let client = if settings.breaker == self.shared.settings.breaker {
            client.clone()
        } else {
            client.with_breaker(settings.breaker.clone())
        };
        Ok(Self::assemble(client, settings, queues.clone(), polls.clone()))
    }

    /// Returns the same locks with another default namespace for keys.
    pub fn with_namespace(&self, namespace: impl Into<String>) -> Result<Self> {
        let settings = self.shared.settings.clone().with_namespace(namespace);
        LockKey::new(&settings.namespace, "any")?;
        let Shared { client, queues, polls, .. } = &*self.shared;
        Ok(Self::assemble(client.clone(), settings, queues.clone(), polls.clone()))
    }

    /// Acquires a lock, and waits for it as long as the policy allows: `locks.acquire(key).await`.
    pub fn acquire(&self, key: impl AsRef<[u8]>) -> Acquire {
        Acquire::new(self.clone(), key.as_ref().to_owned())
    }

    /// Acquires a lock if it is free now; returns `None` if it is not.
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Option<Guard>> {
        self.acquire(key).try_acquire().await
    }

    /// Asks for a lock without waiting, and returns when to poll again if it is not free. For controllers that must not
    /// sleep. Between polls the process keeps its position among the waiters, and the time since which it waits.
    pub async fn poll(&self, key: impl AsRef<[u8]>) -> Result<Polled> {
        self.acquire(key).poll().await
    }

    /// Creates a value once, for any number of callers. While the caller waits for the lock, `probe` checks whether
    /// another caller has created the value. When it has the lock, it probes again, and then calls `create`.
    ///
    /// `create` receives the token and must itself be idempotent: the lock is the optimisation, `create` the guarantee.
    pub fn once<T, E, P, PF, C, CF>(&self, key: impl AsRef<[u8]>, probe: P, create: C) -> CreateOnce<P, C>
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
        if self.call_as_holder(call).await? {
            return Ok(validity::valid_until(sent, lasts).saturating_sub(clock::now()));
        }
        Err(Error::Lost { token: lease.token() })
    }

    /// Releases a detached lock. Fails with [`Error::Lost`] if another client holds the lock, or it is free, also
    /// because it was released before.
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        let call = self.store().release(lease.key(), lease.nonce(), lease.token());
        if self.call_as_holder(call).await? { Ok(()) } else { Err(Error::Lost { token: lease.token() }) }
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
    pub async fn list(&self, filter: &LockFilter) -> Result<Vec<LockRecord>> {
        let query = filter.query();
        self.call(self.store().list(&query)).await
    }

    /// Force-releases a lock and raises its token, so that writes of the previous holder are rejected from now on.
    /// Returns the previous holder, if there was one.
    pub async fn force_release(&self, key: impl AsRef<[u8]>) -> Result<Option<Holder>> {
        let key = self.key(key)?;
        self.call(self.store().force_release(&key)).await
    }

    /// Raises the floor of the store's tokens: every later token is above it. Call it if a resource has seen a higher
    /// token than the store grants, because the wall clock of the store was wrong, or the resource has seen tokens of
    /// another store. A floor below the present one changes nothing. Returns the floor from now on.
    pub async fn raise_floor(&self, floor: Token) -> Result<Token> {
        if floor > Token::MAX_FLOOR {
            return Err(Error::FloorTooHigh { floor });
        }
        self.call(self.store().raise_floor(floor)).await
    }

    /// Prunes at most `limit` locks that were neither held nor requested for `idle_for`. Returns the number pruned.
    pub async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.call(self.store().prune(idle_for, limit)).await
    }

    fn key(&self, key: impl AsRef<[u8]>) -> Result<LockKey> {
        Ok(LockKey::new(&self.shared.settings.namespace, key)?)
    }

    fn store(&self) -> &dyn LeaseStore {
        self.shared.client.store()
    }

    /// Makes a holder's call, regardless of the breaker.
    async fn call_as_holder<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.shared
            .client
            .call_bypassing_breaker(CALL_TIMEOUT, call)
            .await
            .map_err(|CallError { error, .. }| error)
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.shared.client.call(CALL_TIMEOUT, call).await.map_err(|CallError { error, .. }| error)
    }
}

impl Shared {
    /// Returns the position at the head of the queue, if the queue of this process is empty.
    fn try_join_as_head(&self, key: &LockKey) -> Option<QueuePosition> {
        self.queues.join(key, self.settings.max_waiters).ok().filter(QueuePosition::is_head)
    }
}

fn unknown_store(url: &str) -> Error {
    // The part before the host may contain a password.
    let shown = url.split_once("://").map_or(url, |(scheme, _)| scheme);
    Error::Settings(format!(
        "`{shown}` is not a store of locks: use sqlite:FILE, postgres://USER@HOST/DATABASE, kubernetes:NAMESPACE or memory:, \
         if this build supports it"
    ))
}

/// The filter of a listing. The default selects all locks, and returns at most a hundred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockFilter {
    namespace: Option<String>,
    held: bool,
    prefix: String,
    after: Option<ListCursor>,
    limit: u32,
}

impl Default for LockFilter {
    fn default() -> Self {
        Self { namespace: None, held: false, prefix: String::new(), after: None, limit: 100 }
    }
}

impl LockFilter {
    /// Selects only locks of this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Selects only held locks.
    #[must_use]
    pub fn held(mut self) -> Self {
        self.held = true;
        self
    }

    /// Selects only locks whose readable key starts with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Selects only locks after this one in the order of the list: its namespace, its key and its digest.
    #[must_use]
    pub fn after(mut self, namespace: &str, key: &str, digest: &str) -> Self {
        let [namespace, key, digest] = [namespace, key, digest].map(str::to_owned);
        self.after = Some(ListCursor { namespace, key, digest });
        self
    }

    /// Sets the maximum number of locks returned.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    fn query(&self) -> ListQuery {
        let Self { namespace, held, prefix, after, limit } = self.clone();
        ListQuery { namespace, held, prefix, after, limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_of_an_unknown_store_omits_the_password() {
        let error = Locks::open("mysql://me:secret@db/x").await.unwrap_err().to_string();
        assert!(error.contains("`mysql` is not a store") && !error.contains("secret"), "{error}");
    }
}
