//! Locks in this process's memory: for one process, for tests, and as the simplest example of an engine.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::notify::{Subscribers, Subscription};
use crate::row::Row;
use crate::store::{AcquireOutcome, AcquireRequest, LeaseStore, ListQuery, Result};
use crate::token::TokenBase;
use crate::{Holder, LockKey, LockRecord, Nonce, Token, clock};

/// The number of keys from which unused keys are pruned before another is added.
const PRUNE_THRESHOLD: usize = 65_536;

#[derive(Debug)]
pub(crate) struct MemoryStore {
    rows: Mutex<Rows>,
    pub(crate) subscribers: Subscribers,
}

#[derive(Debug)]
struct Rows {
    by_key: HashMap<[u8; 32], (LockKey, Row)>,
    /// The highest token of all pruned locks, or a higher one that an operator has set.
    floor: Token,
    /// The number of keys at which unused keys are pruned next.
    prune_at: usize,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        let rows = Rows { by_key: HashMap::new(), floor: Token::new(0), prune_at: PRUNE_THRESHOLD };
        Self { rows: Mutex::new(rows), subscribers: Subscribers::default() }
    }

    fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut Row, TokenBase, Duration) -> T) -> Option<T> {
        let mut rows = self.rows.lock();
        let token_base = rows.token_base();
        let (_, row) = rows.by_key.get_mut(key.digest())?;
        Some(change(row, token_base, clock::now()))
    }
}

impl Rows {
    fn token_base(&self) -> TokenBase {
        TokenBase { floor: self.floor, wall: clock::wall() }
    }

    fn prune(&mut self, idle_for: Duration, limit: usize, now: Duration) -> u64 {
        let (mut pruned, floor) = (0, &mut self.floor);
        self.by_key.retain(|_, (_, row)| {
            let keep = pruned == limit || !row.is_idle(idle_for, now);
            if !keep {
                pruned += 1;
                *floor = (*floor).max(row.token());
            }
            keep
        });
        pruned as u64
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome> {
        let now = clock::now();
        let mut rows = self.rows.lock();
        if rows.by_key.len() >= rows.prune_at {
            rows.prune(Duration::ZERO, usize::MAX, now);
            rows.prune_at = PRUNE_THRESHOLD.max(rows.by_key.len() * 2);
        }
        let token_base = rows.token_base();
        let fresh = || (request.key.clone(), Row::new(now));
        let (_, row) = rows.by_key.entry(*request.key.digest()).or_insert_with(fresh);
        Ok(row.try_acquire(&request.owner, request.lease, request.waits_for, token_base, now))
    }

    async fn renew(&self, key: &LockKey, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        Ok(self.with(key, |row, _, now| row.renew(nonce, token, lease, now)).unwrap_or(false))
    }

    async fn release(&self, key: &LockKey, nonce: Nonce, token: Token) -> Result<bool> {
        let notification = self.with(key, |row, _, now| row.release(nonce, token, now)).flatten();
        notification.inspect(|notification| self.subscribers.notify(key.digest(), *notification));
        Ok(notification.is_some())
    }

    async fn withdraw(&self, key: &LockKey, nonce: Nonce) -> Result<()> {
        let notification = self.with(key, |row, _, now| row.withdraw(nonce, now)).flatten();
        notification.inspect(|notification| self.subscribers.notify(key.digest(), *notification));
        Ok(())
    }

    async fn read(&self, key: &LockKey) -> Result<Option<LockRecord>> {
        Ok(self.with(key, |row, _, now| row.record(key, now)))
    }

    async fn granted(&self, key: &LockKey, nonce: Nonce) -> Result<Option<Token>> {
        Ok(self.with(key, |row, _, _| row.granted(nonce)).flatten())
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<LockRecord>> {
        let now = clock::now();
        let rows = self.rows.lock();
        Ok(query.select(rows.by_key.values().map(|(key, row)| row.record(key, now))))
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<Holder>> {
        let forced = self.with(key, Row::force_release).flatten();
        let Some((holder, notification)) = forced else { return Ok(None) };
        self.subscribers.notify(key.digest(), notification);
        Ok(holder)
    }

    async fn raise_floor(&self, floor: Token) -> Result<Token> {
        let mut rows = self.rows.lock();
        rows.floor = rows.floor.max(floor);
        Ok(rows.floor)
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(self.rows.lock().prune(idle_for, limit, clock::now()))
    }

    fn subscribe(&self, key: &LockKey) -> Subscription {
        self.subscribers.subscribe(key.digest())
    }
}
