//! Locks in this process's memory: for one process, for tests, and as the simplest example of an engine.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::row::{Ground, Row};
use crate::store::{Answer, Bid, LeaseStore, Listing, Result};
use crate::wakes::{Subscription, Wakes};
use crate::{Holder, Key, LockRecord, Nonce, Token, clock};

/// The number of keys from which unused keys are pruned before another is added.
const MANY_KEYS: usize = 65_536;

#[derive(Debug)]
pub(crate) struct Memory {
    rows: Mutex<Rows>,
    pub(crate) wakes: Wakes,
}

#[derive(Debug)]
struct Rows {
    by_key: HashMap<[u8; 32], (Key, Row)>,
    ground: Ground,
    /// The number of keys at which unused keys are pruned next.
    tidy_at: usize,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let ground = Ground { era: 0, floor: Token::new(0) };
        let rows = Rows { by_key: HashMap::new(), ground, tidy_at: MANY_KEYS };
        Self { rows: Mutex::new(rows), wakes: Wakes::default() }
    }

    /// Returns the rows. A panic elsewhere cannot leave a row half changed.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, key: &Key, change: impl FnOnce(&mut Row, Ground, Duration) -> T) -> Option<T> {
        let mut rows = self.rows();
        let ground = rows.ground;
        let (_, row) = rows.by_key.get_mut(key.digest())?;
        Some(change(row, ground, clock::now()))
    }
}

impl Rows {
    fn forget(&mut self, idle_for: Duration, limit: usize, now: Duration) -> u64 {
        let (mut forgotten, floor) = (0, &mut self.ground.floor);
        self.by_key.retain(|_, (_, row)| {
            let keep = forgotten == limit || !row.is_idle(idle_for, now);
            if !keep {
                forgotten += 1;
                *floor = (*floor).max(row.token());
            }
            keep
        });
        forgotten as u64
    }
}

#[async_trait]
impl LeaseStore for Memory {
    async fn try_acquire(&self, bid: &Bid) -> Result<Answer> {
        let now = clock::now();
        let mut rows = self.rows();
        if rows.by_key.len() >= rows.tidy_at {
            rows.forget(Duration::ZERO, usize::MAX, now);
            rows.tidy_at = MANY_KEYS.max(rows.by_key.len() * 2);
        }
        let ground = rows.ground;
        let fresh = || (bid.key.clone(), Row::new(now));
        let (_, row) = rows.by_key.entry(*bid.key.digest()).or_insert_with(fresh);
        Ok(row.bid(&bid.owner, bid.lease, bid.waits, ground, now))
    }

    async fn renew(&self, key: &Key, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        Ok(self.with(key, |row, _, now| row.renew(nonce, token, lease, now)).unwrap_or(false))
    }

    async fn release(&self, key: &Key, nonce: Nonce, token: Token) -> Result<bool> {
        let heard = self.with(key, |row, _, now| row.release(nonce, token, now)).flatten();
        heard.inspect(|heard| self.wakes.tell(key.digest(), *heard));
        Ok(heard.is_some())
    }

    async fn withdraw(&self, key: &Key, nonce: Nonce) -> Result<()> {
        let heard = self.with(key, |row, _, now| row.withdraw(nonce, now)).flatten();
        heard.inspect(|heard| self.wakes.tell(key.digest(), *heard));
        Ok(())
    }

    async fn read(&self, key: &Key) -> Result<Option<LockRecord>> {
        Ok(self.with(key, |row, _, now| row.record(key, now)))
    }

    async fn granted(&self, key: &Key, nonce: Nonce) -> Result<Option<Token>> {
        Ok(self.with(key, |row, _, _| row.granted(nonce)).flatten())
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<LockRecord>> {
        let now = clock::now();
        let wanted = |key: &Key, row: &Row| {
            listing.namespace.as_ref().is_none_or(|namespace| key.namespace() == namespace)
                && key.readable().starts_with(&listing.prefix)
                && (!listing.held || row.holder(now).is_some())
        };
        let rows = self.rows();
        let found = rows.by_key.values().filter(|(key, row)| wanted(key, row));
        let mut found: Vec<LockRecord> = found
            .map(|(key, row)| row.record(key, now))
            .filter(|record| listing.after.as_ref().is_none_or(|mark| record.is_after(mark)))
            .collect();
        found.sort_by(|one, other| {
            (&one.namespace, &one.key, &one.digest).cmp(&(&other.namespace, &other.key, &other.digest))
        });
        found.truncate(usize::try_from(listing.limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    async fn force_release(&self, key: &Key) -> Result<Option<Holder>> {
        let forced = self.with(key, Row::force_release).flatten();
        let Some((holder, heard)) = forced else { return Ok(None) };
        self.wakes.tell(key.digest(), heard);
        Ok(holder)
    }

    async fn raise_era(&self) -> Result<u64> {
        let mut rows = self.rows();
        rows.ground.era += 1;
        Ok(rows.ground.era)
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(self.rows().forget(idle_for, limit, clock::now()))
    }

    fn subscribe(&self, key: &Key) -> Subscription {
        self.wakes.subscribe(key.digest())
    }
}
