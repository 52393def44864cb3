//! Tests of the behaviour that a user of locks can observe, under paused time.

mod acquiring;
mod holding;
mod once;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::engine::memory::MemoryStore;
use crate::notify::{Notification, Subscription};
use crate::store::{AcquireOutcome, AcquireRequest, LeaseStore, ListQuery, Result};
use crate::{Error, Holder, LockKey, LockRecord, Locks, Nonce, Token};

const SECOND: Duration = Duration::from_secs(1);

/// Returns locks and their store, which can be made to fail. Each "process" gets its own locks.
fn locks() -> (Locks, Arc<FlakyStore>) {
    let store = Arc::new(FlakyStore::new());
    (Locks::with_store(store.clone()), store)
}

/// Returns the locks of another process on the same store.
fn another_process(store: &Arc<FlakyStore>) -> Locks {
    Locks::with_store(store.clone())
}

/// Lets all ready tasks run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// A store that can be made to fail.
#[derive(Debug)]
struct FlakyStore {
    store: MemoryStore,
    is_down: AtomicBool,
    is_hanging: AtomicBool,
    /// The number of requests that are executed but whose responses are lost.
    lost_responses: AtomicU32,
    requests: AtomicU32,
}

impl FlakyStore {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            is_down: AtomicBool::new(false),
            is_hanging: AtomicBool::new(false),
            lost_responses: AtomicU32::new(0),
            requests: AtomicU32::new(0),
        }
    }

    fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    fn notify(&self, key: &LockKey, notification: Notification) {
        self.store.subscribers.notify(key.digest(), notification);
    }

    async fn reach(&self) -> Result<()> {
        if self.is_hanging.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.is_down.load(Ordering::Relaxed) { Err(unreachable()) } else { Ok(()) }
    }
}

fn unreachable() -> Error {
    Error::Store { transient: true, source: "unreachable".into() }
}

#[async_trait]
impl LeaseStore for FlakyStore {
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.reach().await?;
        let answer = self.store.try_acquire(request).await;
        let lose = |left: u32| left.checked_sub(1);
        match self.lost_responses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose) {
            Ok(_) => Err(unreachable()),
            Err(_) => answer,
        }
    }

    async fn renew(&self, key: &LockKey, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        self.reach().await?;
        self.store.renew(key, nonce, token, lease).await
    }

    async fn release(&self, key: &LockKey, nonce: Nonce, token: Token) -> Result<bool> {
        self.reach().await?;
        self.store.release(key, nonce, token).await
    }

    async fn withdraw(&self, key: &LockKey, nonce: Nonce) -> Result<()> {
        self.reach().await?;
        self.store.withdraw(key, nonce).await
    }

    async fn read(&self, key: &LockKey) -> Result<Option<LockRecord>> {
        self.store.read(key).await
    }

    async fn granted(&self, key: &LockKey, nonce: Nonce) -> Result<Option<Token>> {
        self.reach().await?;
        self.store.granted(key, nonce).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<LockRecord>> {
        self.store.list(query).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<Holder>> {
        self.store.force_release(key).await
    }

    async fn raise_floor(&self, floor: Token) -> Result<Token> {
        self.store.raise_floor(floor).await
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.store.prune(idle_for, limit).await
    }

    fn subscribe(&self, key: &LockKey) -> Subscription {
        self.store.subscribe(key)
    }
}
