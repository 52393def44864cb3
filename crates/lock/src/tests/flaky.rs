//! A store that can be made to fail.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::engine::memory::Memory;
use crate::store::{Answer, Bid, LeaseStore, Listing, Result};
use crate::wakes::{Heard, Subscription};
use crate::{Error, Holder, Key, LockRecord, Nonce, Token};

#[derive(Debug)]
pub(super) struct Flaky {
    store: Memory,
    pub(super) is_down: AtomicBool,
    pub(super) is_hanging: AtomicBool,
    /// The number of bids that are executed but whose responses are lost.
    pub(super) lost_answers: AtomicU32,
    pub(super) asked: AtomicU32,
}

impl Flaky {
    pub(super) fn new() -> Self {
        Self {
            store: Memory::new(),
            is_down: AtomicBool::new(false),
            is_hanging: AtomicBool::new(false),
            lost_answers: AtomicU32::new(0),
            asked: AtomicU32::new(0),
        }
    }

    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, key: &Key, heard: Heard) {
        self.store.wakes.tell(key.digest(), heard);
    }

    async fn reach(&self) -> Result<()> {
        if self.is_hanging.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.is_down.load(Ordering::Relaxed) { Err(away()) } else { Ok(()) }
    }
}

fn away() -> Error {
    Error::Store { transient: true, source: "away".into() }
}

#[async_trait]
impl LeaseStore for Flaky {
    async fn try_acquire(&self, bid: &Bid) -> Result<Answer> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.reach().await?;
        let answer = self.store.try_acquire(bid).await;
        let lose = |left: u32| left.checked_sub(1);
        match self.lost_answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose) {
            Ok(_) => Err(away()),
            Err(_) => answer,
        }
    }

    async fn renew(&self, key: &Key, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        self.reach().await?;
        self.store.renew(key, nonce, token, lease).await
    }

    async fn release(&self, key: &Key, nonce: Nonce, token: Token) -> Result<bool> {
        self.reach().await?;
        self.store.release(key, nonce, token).await
    }

    async fn withdraw(&self, key: &Key, nonce: Nonce) -> Result<()> {
        self.reach().await?;
        self.store.withdraw(key, nonce).await
    }

    async fn read(&self, key: &Key) -> Result<Option<LockRecord>> {
        self.store.read(key).await
    }

    async fn granted(&self, key: &Key, nonce: Nonce) -> Result<Option<Token>> {
        self.reach().await?;
        self.store.granted(key, nonce).await
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<LockRecord>> {
        self.store.list(listing).await
    }

    async fn force_release(&self, key: &Key) -> Result<Option<Holder>> {
        self.store.force_release(key).await
    }

    async fn raise_era(&self) -> Result<u64> {
        self.store.raise_era().await
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.store.prune(idle_for, limit).await
    }

    fn subscribe(&self, key: &Key) -> Subscription {
        self.store.subscribe(key)
    }
}
