//! Locks as Leases of a Kubernetes cluster.
//!
//! ```text
//! lease_object.rs  the content of a Lease, and its changes     api.rs    the requests, their errors, the server's clock
//! observed.rs      when a lease has expired, on our clock      watch.rs  notifications of released locks
//! admin.rs         listing, pruning, the floor of the tokens
//! ```
//!
//! # Invariants
//!
//! - A Lease is created unheld once, and then only written by PUT with its uid and resourceVersion. A release does not
//!   delete it.
//! - A lease has expired when *this process* has seen it unrenewed for its own duration on its own clock.
//! - A token is the time of its grant on the API server's clock, or one more than the previous token. The first token of
//!   a Lease is ten seconds above its creation on that clock, plus a microsecond for each resourceVersion. If an operator
//!   deletes a Lease, or removes its annotations, its tokens therefore continue above every earlier token.
//! - A Lease without a token is granted only after the floor was read from the record, later than the Lease.
//!
//! # What is not promised
//!
//! A Lease does not record waiters: the store makes no reservation for the longest-waiting contender, and `waiting` is
//! 0. A process that has just started to observe a lock waits a whole lease for a dead holder.
//!
//! A client that may write Leases can write any token or floor into them. Tokens may decrease if a Lease is deleted and
//! the clocks of the API servers differ by more than ten seconds, or if versions pass a multiple of a million in the
//! second in which a Lease is deleted and created again, or if etcd is restored within ten seconds after a Lease was
//! created, because its first tokens are ahead of the clock. If an operator deletes the record *and* every lock, a floor
//! that was raised is lost.

mod admin;
mod api;
mod lease_object;
mod observed;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::key::to_hex;
use crate::notify::{Subscribers, Subscription};
use crate::store::{AcquireOutcome, AcquireRefusal, AcquireRequest, LeaseStore, ListQuery, Result};
use crate::token::TokenBase;
use crate::{Error, Holder, LockKey, LockRecord, Nonce, Token, clock};

use super::optimistic::UnresolvedWrites;
use api::{Leases, RequestError, RequestResult};
use lease_object::LeaseObject;
use observed::{Age, LastWritten, ObservedLeases};

/// The maximum number of attempts of one call after write conflicts.
const MAX_ATTEMPTS: u32 = 8;

/// A namespace of a cluster that keeps locks.
#[derive(Debug)]
pub(crate) struct KubernetesStore {
    inner: Arc<Inner>,
    watching: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    leases: Leases,
    observed: Mutex<ObservedLeases>,
    /// The uid and version from which each write with an unknown outcome was made. A newer version invalidates it.
    unresolved: UnresolvedWrites<(String, String)>,
    last_written: LastWritten,
    subscribers: Subscribers,
    is_watching: Mutex<bool>,
    /// The wall clock. It is for display only.
    wall: fn() -> Timestamp,
}

impl KubernetesStore {
    /// Returns the locks in a namespace of the client's cluster.
    pub(crate) fn open(client: Client, namespace: &str) -> Self {
        let inner = Inner {
            leases: Leases::new(client, namespace),
            observed: Mutex::default(),
            unresolved: UnresolvedWrites::default(),
            last_written: LastWritten::default(),
            subscribers: Subscribers::default(),
            is_watching: Mutex::new(false),
            wall: Timestamp::now,
        };
        Self { inner: Arc::new(inner), watching: Mutex::default() }
    }

    /// Opens the locks at `kubernetes:NAMESPACE`, in the cluster that this process runs in, or else in the cluster that
    /// the kubeconfig names. Without a namespace, uses the namespace of the configuration.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let namespace =
            url.strip_prefix("kubernetes:").filter(|name| is_namespace(name)).ok_or_else(|| {
                Error::Settings(format!(
                    "the URL {url:?} is not of the form kubernetes:NAMESPACE, where NAMESPACE may be empty"
                ))
            })?;
        let mut config = Config::infer().await.map_err(|error| Error::store(false, error))?;
        // The acquisition loop decides when to ask again.
        config.default_retry = false;
        let own = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| Error::store(false, error))?;
        Ok(Self::open(client, if namespace.is_empty() { &own } else { namespace }))
    }
}

fn is_namespace(name: &str) -> bool {
    name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

impl Inner {
    async fn get(&self, key: &LockKey) -> RequestResult<Option<LeaseObject>> {
        self.leases.get(&lease_object::name(key.digest())).await
    }

    /// Records an observation that was requested at `requested_at` and has just arrived; `None` if the lock is not held.
    fn observe(&self, object: &LeaseObject, requested_at: Duration) -> Option<Age> {
        let (digest, renewal_version) = (object.digest()?, object.renewal_version());
        let Some(renewal_version) = renewal_version else {
            self.observed.lock().remove(&digest);
            return None;
        };
        Some(self.observed.lock().observe(digest, renewal_version, requested_at, clock::now()))
    }

    /// Returns the holder, unless its lease has expired.
    fn holder(&self, object: &LeaseObject, requested_at: Duration) -> Option<Holder> {
        let (age, owner) = (self.observe(object, requested_at)?, object.owner()?);
        let ends_in = object.lease().saturating_sub(age.unrenewed_for);
        // The time written by the holder may be as wrong as its clock. It is only for display.
        let held_for = object.acquired_at().map(|then| (self.wall)().duration_since(then));
        let held_for = held_for.and_then(|held_for| Duration::try_from(held_for).ok()).unwrap_or_default();
        let token = object.token().unwrap_or(Token::new(0));
        let holder = Holder { owner, token, held_for: held_for.max(age.held_for), ends_in };
        (!ends_in.is_zero()).then_some(holder)
    }

    /// Returns the Lease of the lock, and creates it if there is none.
    async fn get_or_create(&self, key: &LockKey) -> RequestResult<LeaseObject> {
        match self.get(key).await? {
            Some(object) => Ok(object),
            None => self.leases.create(&LeaseObject::unheld(key)).await,
        }
    }

    /// Returns the next token to grant.
    async fn next_token(&self, object: &LeaseObject) -> Result<Token> {
        let floor = match object.highest() {
            Some(highest) => highest,
            None => admin::read_floor(&self.leases).await?.max(object.first_floor()),
        };
        Ok(floor.next(TokenBase { floor, wall: self.leases.server_time().await? }))
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> RequestResult<AcquireOutcome> {
        let AcquireRequest { key, owner, lease, .. } = request;
        let requested_at = clock::now();
        let mut object = self.get_or_create(key).await?;
        if object.is_held_by(owner.nonce) {
            object.renew(*lease, (self.wall)());
            let token = object.token().unwrap_or(Token::new(0));
            self.last_written.insert(self.leases.put(&object).await?);
            self.unresolved.resolve(owner.nonce);
            return Ok(AcquireOutcome::Granted(token));
        }
        if let Some(holder) = self.holder(&object, requested_at) {
            // A write from another version than the newest cannot take effect.
            self.unresolved.resolve_if(owner.nonce, |version| *version != object.version());
            let free_in = holder.ends_in;
            return Ok(AcquireOutcome::Refused(AcquireRefusal { holder: Some(holder), free_in, waiting: 0 }));
        }
        let token = self.next_token(&object).await.map_err(RequestError::Other)?;
        self.unresolved.insert(owner.nonce, object.version());
        object.grant(key, owner, token, *lease, (self.wall)());
        let last_written = self.leases.put(&object).await;
        if matches!(last_written, Ok(_) | Err(RequestError::Conflict)) {
            self.unresolved.resolve(owner.nonce);
        }
        self.last_written.insert(last_written?);
        self.observed.lock().remove(key.digest());
        Ok(AcquireOutcome::Granted(token))
    }

    /// Changes a lock from its newest version. `change` returns whether to write. Returns the written Lease; `None` if
    /// there is no such lock, or `change` declined.
    async fn change(
        &self,
        key: &LockKey,
        mut change: impl FnMut(&mut LeaseObject, Duration) -> bool,
    ) -> Result<Option<LeaseObject>> {
        for _ in 0..MAX_ATTEMPTS {
            let requested_at = clock::now();
            let Some(mut object) = self.get(key).await? else { return Ok(None) };
            if !change(&mut object, requested_at) {
                return Ok(None);
            }
            match self.leases.put(&object).await {
                Ok(last_written) => return Ok(Some(last_written)),
                Err(RequestError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RequestError::Conflict.into())
    }

    /// Changes a lock that this nonce holds with this token. Returns whether it does. The version that this process
    /// wrote last is most likely the newest, so one request suffices. If it is not the newest, the write is rejected,
    /// and the change starts again from the newest version.
    async fn change_own(
        &self,
        key: &LockKey,
        nonce: Nonce,
        token: Token,
        change: impl Fn(&mut LeaseObject),
    ) -> Result<bool> {
        let is_own = |object: &LeaseObject| object.is_held_by(nonce) && object.token() == Some(token);
        if let Some(mut object) = self.last_written.take(key.digest()).filter(is_own) {
            change(&mut object);
            match self.leases.put(&object).await {
                Ok(object) => {
                    self.last_written.insert(object);
                    return Ok(true);
                }
                Err(RequestError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let change = |object: &mut LeaseObject, _| {
            let is_own = is_own(object);
            if is_own {
                change(object);
            }
            is_own
        };
        let object = self.change(key, change).await?;
        Ok(object.map(|object| self.last_written.insert(object)).is_some())
    }

    /// Ensures that no call of this nonce whose response was lost can still take effect. A write made from the current
    /// version could, so this function then writes a new version.
    async fn resolve(&self, key: &LockKey, nonce: Nonce) -> Result<()> {
        if let Some(version) = self.unresolved.get(nonce) {
            let invalidate = |object: &mut LeaseObject, _| {
                let might_arrive = object.version() == version;
                if might_arrive {
                    object.touch();
                }
                might_arrive
            };
            self.change(key, invalidate).await?;
            self.unresolved.resolve(nonce);
        }
        Ok(())
    }

    fn record(&self, object: &LeaseObject, requested_at: Duration) -> Option<LockRecord> {
        Some(LockRecord {
            namespace: object.namespace().to_owned(),
            key: object.key().to_owned(),
            digest: to_hex(&object.digest()?),
            token: object.token()?,
            holder: self.holder(object, requested_at),
            waiting: 0,
        })
    }
}

#[async_trait]
impl LeaseStore for KubernetesStore {
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome> {
        for _ in 0..MAX_ATTEMPTS {
            match self.inner.try_acquire(request).await {
                // Another client wrote first, or a call of this process whose response was lost.
                Err(RequestError::Conflict) => {}
                answer => return Ok(answer?),
            }
        }
        Ok(AcquireOutcome::Refused(AcquireRefusal::default()))
    }

    async fn renew(&self, key: &LockKey, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        let wall = self.inner.wall;
        self.inner.change_own(key, nonce, token, |object| object.renew(lease, wall())).await
    }

    async fn release(&self, key: &LockKey, nonce: Nonce, token: Token) -> Result<bool> {
        let wall = self.inner.wall;
        self.inner.change_own(key, nonce, token, |object| object.release(wall())).await
    }

    async fn withdraw(&self, key: &LockKey, nonce: Nonce) -> Result<()> {
        self.inner.resolve(key, nonce).await?;
        let wall = self.inner.wall;
        let release = |object: &mut LeaseObject, _| {
            let is_own = object.is_held_by(nonce);
            if is_own {
                object.release(wall());
            }
            is_own
        };
        self.inner.change(key, release).await?;
        Ok(())
    }

    async fn read(&self, key: &LockKey) -> Result<Option<LockRecord>> {
        let requested_at = clock::now();
        let object = self.inner.get(key).await?;
        Ok(object.and_then(|object| self.inner.record(&object, requested_at)))
    }

    async fn granted(&self, key: &LockKey, nonce: Nonce) -> Result<Option<Token>> {
        self.inner.resolve(key, nonce).await?;
        let object = self.inner.get(key).await?;
        Ok(object.filter(|object| object.is_held_by(nonce)).and_then(|object| object.token()))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<LockRecord>> {
        self.inner.list(query).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<Holder>> {
        let mut had = None;
        let take = |object: &mut LeaseObject, requested_at| {
            had = self.inner.holder(object, requested_at);
            let (Some(_), Some(highest)) = (object.owner(), object.highest()) else { return false };
            object.raise_token(highest.next(TokenBase { floor: highest, wall: Duration::ZERO }));
            object.release((self.inner.wall)());
            true
        };
        let taken = self.inner.change(key, take).await?;
        Ok(had.filter(|_| taken.is_some()))
    }

    async fn raise_floor(&self, floor: Token) -> Result<Token> {
        self.inner.raise_floor(floor).await
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.inner.prune(idle_for, limit).await
    }

    fn subscribe(&self, key: &LockKey) -> Subscription {
        let subscription = self.inner.subscribers.subscribe(key.digest());
        let mut is_watching = self.inner.is_watching.lock();
        let mut task = self.watching.lock();
        if !*is_watching || task.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            *is_watching = true;
            *task = Some(AbortOnDropHandle::new(tokio::spawn(watch::run(Arc::clone(&self.inner)))));
        }
        subscription
    }
}
