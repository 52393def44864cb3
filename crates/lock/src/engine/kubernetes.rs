//! Locks as Leases of a Kubernetes cluster.
//!
//! ```text
//! entry.rs    what a Lease says of a lock        api.rs     the requests, and what refusals mean
//! observed.rs when a lease is over, to our eyes  era.rs     the one record: era and floor
//! unsure.rs   calls whose answers were lost      watch.rs   hearing that a lock was let go
//! written.rs  the versions we wrote last         sweep.rs   what is done to many at once
//! ```
//!
//! # Invariants
//!
//! - A Lease is created unheld once, and then only written by PUT with its uid and resourceVersion. A release does not
//!   delete it.
//! - A lease has expired when *this process* has seen it unrenewed for its own duration on its own clock.
//! - The counter of a token is never above the resourceVersion of the write that granted it: it starts at the version
//!   that the Lease had when it had no token yet, and each grant is a write. The versions of a cluster only grow. If an
//!   operator deletes a Lease, or removes its annotations, its tokens therefore continue above every earlier token.
//! - A Lease without a token is granted only after its fencing epoch was read from the record, later than the Lease.
//!
//! # What is not promised
//!
//! A Lease does not record waiters: the store makes no reservation for the longest-waiting contender, and `waiting` is
//! 0. A process that has just started to observe a lock waits a whole lease for a dead holder.
//!
//! A client that may write Leases can write any token or fencing epoch into them. If versions decrease, because etcd
//! was restored or moved, tokens grow only after the epoch was raised. If an operator deletes the record *and* every
//! lock, the epoch is lost.

mod api;
mod clock;
mod entry;
mod era;
mod observed;
mod sweep;
#[cfg(test)]
mod tests;
mod unsure;
mod watch;
mod written;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Config};
use tokio_util::task::AbortOnDropHandle;

use crate::store::{Answer, Bid, Held, LeaseStore, Listing, Result};
use crate::wakes::{Subscription, Wakes};
use crate::{Error, Holder, Key, LockRecord, Nonce, Token};

use api::{Leases, Tried, Trouble, store};
use entry::Entry;
use observed::{Age, Observed};
use unsure::Unsure;
use written::Written;

/// The maximum number of attempts of one call after write conflicts.
const TRIES: u32 = 8;

/// A namespace of a cluster that keeps locks.
#[derive(Debug)]
pub(crate) struct Kubernetes {
    inner: Arc<Inner>,
    watching: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    leases: Leases,
    observed: Mutex<Observed>,
    unsure: Unsure,
    written: Written,
    wakes: Wakes,
    is_watching: Mutex<bool>,
    wall: fn() -> Timestamp,
}

impl Kubernetes {
    /// Returns the locks in a namespace of the client's cluster.
    pub(crate) fn open(client: Client, namespace: &str) -> Self {
        let inner = Inner {
            leases: Leases::new(client, namespace),
            observed: Mutex::default(),
            unsure: Unsure::default(),
            written: Written::default(),
            wakes: Wakes::default(),
            is_watching: Mutex::new(false),
            wall: clock::wall,
        };
        Self { inner: Arc::new(inner), watching: Mutex::default() }
    }

    /// Opens the locks at `kubernetes:NAMESPACE`, in the cluster that this process runs in, or else in the cluster that
    /// the kubeconfig names. Without a namespace, uses the namespace of the configuration.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let namespace =
            url.strip_prefix("kubernetes:").filter(|name| is_namespace(name)).ok_or_else(|| {
                Error::Settings(format!(
                    "{url:?} is not kubernetes:NAMESPACE, with a namespace's name or nothing"
                ))
            })?;
        let mut config = Config::infer().await.map_err(|error| store(false, error))?;
        // The acquisition loop decides when to ask again.
        config.default_retry = false;
        let own = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| store(false, error))?;
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
    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get(&self, key: &Key) -> Tried<Option<Entry>> {
        self.leases.get(&entry::name(key.digest())).await
    }

    /// Records an observation that was requested at `asked_at` and has just arrived; `None` if the lock is not held.
    fn look(&self, entry: &Entry, asked_at: Duration) -> Option<Age> {
        let (digest, beat) = (entry.digest()?, entry.beat());
        let Some(beat) = beat else {
            self.observed().forget(&digest);
            return None;
        };
        Some(self.observed().look(digest, beat, asked_at, clock::now()))
    }

    /// Returns the holder, unless its lease has expired.
    fn holder(&self, entry: &Entry, asked_at: Duration) -> Option<Holder> {
        let (age, owner) = (self.look(entry, asked_at)?, entry.owner()?);
        let ends_in = entry.lease().saturating_sub(age.unrenewed_for);
        // The time written by the holder may be as wrong as its clock. It is only for display.
        let told = entry.acquired_at().map(|then| (self.wall)().duration_since(then));
        let told = told.and_then(|told| Duration::try_from(told).ok()).unwrap_or_default();
        let token = entry.token().unwrap_or(Token::new(0));
        let holder = Holder { owner, token, held_for: told.max(age.held_for), ends_in };
        (!ends_in.is_zero()).then_some(holder)
    }

    /// Returns the Lease of the lock, and creates it if there is none.
    async fn get_or_make(&self, key: &Key) -> Tried<Entry> {
        match self.get(key).await? {
            Some(entry) => Ok(entry),
            None => self.leases.create(&Entry::unheld(key)).await,
        }
    }

    /// Returns the next token to grant.
    async fn next_token(&self, entry: &Entry) -> Result<Token> {
        if let Some(highest) = entry.highest() {
            return Ok(highest.next(highest.era(), highest));
        }
        let record = era::read(&self.leases).await?;
        // The versions of a cluster only grow, and no token is above the version of its grant.
        let reached = Token::new(Token::first_of(record.era).get().saturating_add(entry.revision()) - 1);
        Ok(reached.next(record.era, record.floor))
    }

    async fn try_acquire(&self, bid: &Bid) -> Tried<Answer> {
        let Bid { key, owner, lease, .. } = bid;
        let asked_at = clock::now();
        let mut entry = self.get_or_make(key).await?;
        if entry.is_held_by(owner.nonce) {
            entry.renew(*lease, (self.wall)());
            let token = entry.token().unwrap_or(Token::new(0));
            self.written.keep(self.leases.put(&entry).await?);
            self.unsure.settle(owner.nonce);
            return Ok(Answer::Granted(token));
        }
        if let Some(holder) = self.holder(&entry, asked_at) {
            self.unsure.settle_unless(owner.nonce, &entry.version());
            let free_in = holder.ends_in;
            return Ok(Answer::Held(Held { holder: Some(holder), free_in, waiting: 0 }));
        }
        let token = self.next_token(&entry).await.map_err(Trouble::Other)?;
        self.unsure.note(owner.nonce, entry.version());
        entry.grant(key, owner, token, *lease, (self.wall)());
        let written = self.leases.put(&entry).await;
        if matches!(written, Ok(_) | Err(Trouble::Conflict)) {
            self.unsure.settle(owner.nonce);
        }
        self.written.keep(written?);
        self.observed().forget(key.digest());
        Ok(Answer::Granted(token))
    }

    /// Changes a lock from its newest version. `change` returns whether to write. Returns the written Lease; `None` if
    /// there is no such lock, or `change` declined.
    async fn change(
        &self,
        key: &Key,
        mut change: impl FnMut(&mut Entry, Duration) -> bool,
    ) -> Result<Option<Entry>> {
        for _ in 0..TRIES {
            let asked_at = clock::now();
            let Some(mut entry) = self.get(key).await? else { return Ok(None) };
            if !change(&mut entry, asked_at) {
                return Ok(None);
            }
            match self.leases.put(&entry).await {
                Ok(written) => return Ok(Some(written)),
                Err(Trouble::Conflict) => {}
                Err(trouble) => return Err(trouble.into()),
            }
        }
        Err(Trouble::Conflict.into())
    }

    /// Changes a lock that this nonce holds with this token. Returns whether it does. The version that this process
    /// wrote last is most likely the newest, so one request suffices. If it is not the newest, the write is rejected,
    /// and the change starts again from the newest version.
    async fn change_own(
        &self,
        key: &Key,
        nonce: Nonce,
        token: Token,
        change: impl Fn(&mut Entry),
    ) -> Result<bool> {
        let is_own = |entry: &Entry| entry.is_held_by(nonce) && entry.token() == Some(token);
        if let Some(mut entry) = self.written.take(key.digest()).filter(is_own) {
            change(&mut entry);
            match self.leases.put(&entry).await {
                Ok(entry) => {
                    self.written.keep(entry);
                    return Ok(true);
                }
                Err(Trouble::Conflict) => {}
                Err(trouble) => return Err(trouble.into()),
            }
        }
        let change = |entry: &mut Entry, _| {
            let is_own = is_own(entry);
            if is_own {
                change(entry);
            }
            is_own
        };
        let entry = self.change(key, change).await?;
        Ok(entry.map(|entry| self.written.keep(entry)).is_some())
    }

    /// Ensures that no call of this nonce whose response was lost can still take effect. A write made from the current
    /// version could, so this function then writes a new version.
    async fn settle(&self, key: &Key, nonce: Nonce) -> Result<()> {
        if let Some(version) = self.unsure.version(nonce) {
            let outrun = |entry: &mut Entry, _| {
                let might_arrive = entry.version() == version;
                if might_arrive {
                    entry.touch();
                }
                might_arrive
            };
            self.change(key, outrun).await?;
            self.unsure.settle(nonce);
        }
        Ok(())
    }

    fn record(&self, entry: &Entry, asked_at: Duration) -> Option<LockRecord> {
        Some(LockRecord {
            namespace: entry.namespace().to_owned(),
            key: entry.key().to_owned(),
            digest: entry::hex(&entry.digest()?),
            token: entry.token()?,
            holder: self.holder(entry, asked_at),
            waiting: 0,
        })
    }
}

#[async_trait]
impl LeaseStore for Kubernetes {
    async fn try_acquire(&self, bid: &Bid) -> Result<Answer> {
        for _ in 0..TRIES {
            match self.inner.try_acquire(bid).await {
                // Another client wrote first, or a call of this process whose response was lost.
                Err(Trouble::Conflict) => {}
                answer => return Ok(answer?),
            }
        }
        Ok(Answer::Held(Held::default()))
    }

    async fn renew(&self, key: &Key, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        let wall = self.inner.wall;
        self.inner.change_own(key, nonce, token, |entry| entry.renew(lease, wall())).await
    }

    async fn release(&self, key: &Key, nonce: Nonce, token: Token) -> Result<bool> {
        let wall = self.inner.wall;
        self.inner.change_own(key, nonce, token, |entry| entry.vacate(wall())).await
    }

    async fn withdraw(&self, key: &Key, nonce: Nonce) -> Result<()> {
        self.inner.settle(key, nonce).await?;
        let wall = self.inner.wall;
        let let_go = |entry: &mut Entry, _| {
            let is_own = entry.is_held_by(nonce);
            if is_own {
                entry.vacate(wall());
            }
            is_own
        };
        self.inner.change(key, let_go).await?;
        Ok(())
    }

    async fn read(&self, key: &Key) -> Result<Option<LockRecord>> {
        let asked_at = clock::now();
        let entry = self.inner.get(key).await?;
        Ok(entry.and_then(|entry| self.inner.record(&entry, asked_at)))
    }

    async fn granted(&self, key: &Key, nonce: Nonce) -> Result<Option<Token>> {
        self.inner.settle(key, nonce).await?;
        let entry = self.inner.get(key).await?;
        Ok(entry.filter(|entry| entry.is_held_by(nonce)).and_then(|entry| entry.token()))
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<LockRecord>> {
        self.inner.list(listing).await
    }

    async fn force_release(&self, key: &Key) -> Result<Option<Holder>> {
        let mut had = None;
        let take = |entry: &mut Entry, asked_at| {
            had = self.inner.holder(entry, asked_at);
            let (Some(_), Some(highest)) = (entry.owner(), entry.highest()) else { return false };
            entry.raise_token(highest.next(highest.era(), highest));
            entry.vacate((self.inner.wall)());
            true
        };
        let taken = self.inner.change(key, take).await?;
        Ok(had.filter(|_| taken.is_some()))
    }

    async fn raise_era(&self) -> Result<u64> {
        self.inner.raise_era().await
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.inner.prune(idle_for, limit).await
    }

    fn subscribe(&self, key: &Key) -> Subscription {
        let subscription = self.inner.wakes.subscribe(key.digest());
        let mut is_watching = self.inner.is_watching.lock().unwrap_or_else(PoisonError::into_inner);
        let mut task = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_watching || task.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            *is_watching = true;
            *task = Some(AbortOnDropHandle::new(tokio::spawn(watch::run(Arc::clone(&self.inner)))));
        }
        subscription
    }
}
