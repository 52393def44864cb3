//! Locks in a ledger: rows of a table that all its nodes replicate. It needs no other store.
//!
//! ```text
//! table.rs        the interface to a ledger, implemented by its node     observed.rs  when a lease has expired, notifications
//! stored_lock.rs  the content of a lock's row, and the floor             admin.rs     listing, pruning, the floor of the tokens
//! ```
//!
//! [`Row`] defines the state transitions of a lock. This engine reads a row, changes it, and writes it back with a
//! transaction that expects the row as it was read. If another client was faster, the transaction changes nothing, and
//! the call starts again.
//!
//! # Invariants
//!
//! - A row records no time. A lease has expired when *this process* has seen it unrenewed for its own length on its own
//!   clock, and the transaction that takes the lock finds the row as it was seen.
//! - No two rows of a lock are equal: the version of each is above the versions of all earlier ones. It is an index of
//!   the history that was still to come when the row was written.
//! - Every grant expects the floor to be as it was read. No grant is made below the tokens of pruned locks.
//! - A transaction has one id. If its outcome is unknown, it is submitted again under that id. The outcome of a
//!   request is resolved before any other operation for its nonce.
//!
//! # What is not promised
//!
//! A process that has just started to observe a lock waits a whole lease for a dead holder. A client that may write to
//! the ledger can write any token or floor into it.

mod admin;
mod observed;
mod stored_lock;
mod table;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdoff_ledger::machine::{self, Command, Commands, Value};
use holdoff_ledger::{Slot, TxId, TxKey};
use holdoff_policy::{Failure, Growth, Jitter, Policy, SoFar};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::key::digest_from_hex;
use crate::notify::{Subscribers, Subscription};
use crate::row::Row;
use crate::store::{AcquireOutcome, AcquireRefusal, AcquireRequest, LeaseStore, ListQuery, Result};
use crate::token::TokenBase;
use crate::{Error, Holder, LockKey, LockRecord, Nonce, Token, clock};

use super::optimistic::UnresolvedWrites;
use observed::ObservedRows;
use stored_lock::{StoredLock, WriteParams};
pub(crate) use table::NodeLookup;
use table::{ReadConsistency, Table, TxOutcome};

/// The prefix of the names of locks' rows. The digest follows.
const PREFIX: &str = "holdoff/lock/";
/// The maximum number of attempts of one call after write conflicts.
const MAX_ATTEMPTS: u32 = 16;
/// The maximum number of waiters recorded in a row. A waiter beyond it asks again like the others, but gets no
/// reservation.
const MAX_WAITERS: usize = 64;
/// How long a refusal waits until the waiter is recorded. After that the transaction continues by itself, and the next
/// request of the nonce resolves it: a refusal need not be delayed.
const REGISTER_TIMEOUT: Duration = Duration::from_millis(50);
/// The increment of the maximum pause with each attempt of a call.
const PAUSE_STEP: Duration = Duration::from_millis(2);

/// A ledger that keeps locks.
#[derive(Debug)]
pub(crate) struct LedgerStore {
    inner: Arc<Inner>,
    /// The task that follows the ledger while there are subscribers.
    follower: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    table: Box<dyn Table>,
    observed: Mutex<ObservedRows>,
    /// The submitted transactions with an unknown outcome.
    unresolved: UnresolvedWrites<(TxKey, Commands)>,
    subscribers: Subscribers,
}

/// A lock, as it was read.
struct LockSnapshot {
    /// The last index of the history that the read includes.
    index: u64,
    /// The time at which the response arrived.
    read_at: Duration,
    lock: Option<(Value, StoredLock, Row)>,
    floor: (Option<Value>, Token),
}

impl LedgerStore {
    /// Returns the locks of this table.
    pub(crate) fn new(table: Box<dyn Table>) -> Self {
        let (observed, unresolved, subscribers) =
            (Mutex::default(), UnresolvedWrites::default(), Subscribers::default());
        Self {
            inner: Arc::new(Inner { table, observed, unresolved, subscribers }),
            follower: Mutex::default(),
        }
    }
}

impl Inner {
    async fn read_lock(&self, key: &LockKey, consistency: ReadConsistency) -> Result<LockSnapshot> {
        let gets = vec![Command::Get(name(key)?), Command::Get(stored_lock::floor_key()?)];
        let (index, values) = self.table.read(gets, consistency).await?;
        let read_at = clock::now();
        let [value, floor] = <[_; 2]>::try_from(values)
            .map_err(|_| Error::store(false, "the ledger did not return two values"))?;
        let lock = match value {
            Some(value) => {
                let stored = StoredLock::read(&value)?;
                let row = self.observed.lock().observe(key.digest(), &stored, read_at);
                Some((value, stored, row))
            }
            None => None,
        };
        let read = stored_lock::read_floor(floor.as_ref())?;
        Ok(LockSnapshot { index, read_at, lock, floor: (floor, read) })
    }

    /// Changes a lock. `change` returns the response, and the nonce whose lease starts again. The first attempt uses
    /// this node's local copy, which is most likely the newest, unless other clients want the lock, too. If it is
    /// stale, the transaction detects it, which takes longer than a read of the newest row. Returns `None` if other
    /// clients were faster at every attempt.
    async fn change<T>(
        &self,
        key: &LockKey,
        contender: Option<Nonce>,
        mut change: impl FnMut(&mut Row, TokenBase, Duration) -> (T, Option<Nonce>),
    ) -> Result<Option<T>> {
        for attempt in 0..MAX_ATTEMPTS {
            let consistency = if attempt == 0 { ReadConsistency::Local } else { ReadConsistency::Newest };
            let snapshot = self.read_lock(key, consistency).await?;
            let is_contended =
                snapshot.lock.as_ref().is_some_and(|(_, stored, _)| stored.is_contended(contender));
            if consistency == ReadConsistency::Local && is_contended {
                continue;
            }
            let mut row =
                snapshot.lock.as_ref().map_or_else(|| Row::new(snapshot.read_at), |(_, _, row)| row.clone());
            let token_base = TokenBase { floor: snapshot.floor.1, wall: clock::wall() };
            let (response, renewed) = change(&mut row, token_base, snapshot.read_at);
            let Some((stored, commands)) = snapshot.write(key, &row, renewed)? else {
                if consistency == ReadConsistency::Newest {
                    return Ok(Some(response));
                }
                continue;
            };
            let tx = new_tx(snapshot.index);
            let outcome = match (contender, renewed) {
                (Some(nonce), Some(_)) => self.submit_for(nonce, tx, commands).await?,
                (Some(nonce), None) => {
                    let registering = self.submit_for(nonce, tx, commands);
                    let Ok(outcome) = tokio::time::timeout(REGISTER_TIMEOUT, registering).await else {
                        return Ok(Some(response));
                    };
                    outcome?
                }
                (None, _) => self.table.submit(tx, commands).await?,
            };
            if outcome == TxOutcome::Committed {
                self.observed.lock().observe(key.digest(), &stored, clock::now());
                return Ok(Some(response));
            }
            pause(attempt).await;
        }
        Ok(None)
    }

    /// Submits a transaction and records it, so that its outcome can be resolved after a cancellation.
    async fn submit_for(&self, nonce: Nonce, tx: TxKey, commands: Commands) -> Result<TxOutcome> {
        self.unresolved.insert(nonce, (tx, commands.clone()));
        let outcome = self.table.submit(tx, commands).await?;
        self.unresolved.resolve(nonce);
        Ok(outcome)
    }

    /// Resolves a transaction for this nonce whose outcome is unknown. After that it cannot take effect later.
    async fn resolve(&self, nonce: Nonce) -> Result<()> {
        if let Some((tx, commands)) = self.unresolved.get(nonce) {
            self.table.submit(tx, commands).await?;
            self.unresolved.resolve(nonce);
        }
        Ok(())
    }

    async fn newest(&self, key: &LockKey) -> Result<Option<(Row, Duration)>> {
        let snapshot = self.read_lock(key, ReadConsistency::Newest).await?;
        Ok(snapshot.lock.map(|(_, _, row)| (row, snapshot.read_at)))
    }
}

impl LockSnapshot {
    /// Returns the commands that write the changed row; `None` if the row is unchanged.
    fn write(
        &self,
        key: &LockKey,
        row: &Row,
        renewed: Option<Nonce>,
    ) -> Result<Option<(StoredLock, Commands)>> {
        let before = self.lock.as_ref().map(|(_, stored, row)| (stored, row));
        let written_s = clock::wall().as_secs();
        let params = WriteParams { version: self.index + 1, now: self.read_at, renewed, written_s };
        let stored = StoredLock::written(key, row, before, params);
        let is_same = before.map_or(!stored.is_in_use(), |(before, _)| before.has_same_content(&stored));
        if is_same {
            return Ok(None);
        }
        let (expected, new) = (self.lock.as_ref().map(|(value, _, _)| value.clone()), Some(stored.value()?));
        let mut commands = vec![Command::CompareAndSet { key: name(key)?, expected, new }];
        if before.is_none_or(|(before, _)| before.token != stored.token) {
            commands.push(stored_lock::expect_floor(self.floor.0.clone())?);
        }
        Ok(Some((stored, commands)))
    }
}

/// Returns the key of a new transaction, which is not in the history up to an index that a read has returned.
fn new_tx(birth: u64) -> TxKey {
    TxKey { id: TxId(Uuid::new_v4().as_u128()), birth: Slot(birth) }
}

/// Returns the name of a lock's row.
fn name(key: &LockKey) -> Result<machine::Key> {
    machine::Key::new(format!("{PREFIX}{}", key.hex())).map_err(|error| Error::store(false, error))
}

/// Returns the digest of a lock in hexadecimal digits; `None` if this is not the name of a lock's row.
fn hex_of(name: &machine::Key) -> Option<&str> {
    name.as_str().strip_prefix(PREFIX).filter(|hex| hex.len() == 64)
}

fn digest_of(name: &machine::Key) -> Option<[u8; 32]> {
    digest_from_hex(hex_of(name)?)
}

/// Pauses, so that contenders do not stay in step. After the first attempt there is no pause: only the local copy was
/// stale.
async fn pause(attempt: u32) {
    if attempt > 0 {
        let policy = policy();
        let decision = policy.decide(&SoFar::after(attempt), &Failure::transient(), clock::roll());
        tokio::time::sleep(decision.delay().unwrap_or(policy.cap())).await;
    }
}

fn policy() -> Policy {
    let builder = Policy::builder(Growth::linear(PAUSE_STEP, PAUSE_STEP))
        .jitter(Jitter::Full)
        .cap(PAUSE_STEP * MAX_ATTEMPTS);
    // These numbers are valid; a test checks it.
    builder.attempts(Policy::UNLIMITED).build().unwrap_or_else(|_| Policy::standard())
}

fn contended() -> Error {
    Error::store(true, "other clients changed the lock at every attempt")
}

/// Returns how long to record the waiter: twice the requested time, so that not every request must write. Returns zero if
/// an earlier record still lasts for the requested time.
fn registration_time(row: &Row, request: &AcquireRequest, now: Duration) -> Option<Duration> {
    let waits_for = request.waits_for?;
    let live = || row.waiters.iter().filter(|waiter| waiter.until > now);
    match live().find(|waiter| waiter.nonce == request.owner.nonce) {
        Some(registered) if registered.until.saturating_sub(now) >= waits_for => Some(Duration::ZERO),
        None if live().count() >= MAX_WAITERS => None,
        _ => Some(waits_for.saturating_mul(2)),
    }
}

#[async_trait]
impl LeaseStore for LedgerStore {
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome> {
        let nonce = request.owner.nonce;
        self.inner.resolve(nonce).await?;
        let ask = |row: &mut Row, token_base: TokenBase, now: Duration| {
            let waits_for = registration_time(row, request, now);
            let response = row.try_acquire(&request.owner, request.lease, waits_for, token_base, now);
            let renewed = matches!(response, AcquireOutcome::Granted(_)).then_some(nonce);
            (response, renewed)
        };
        let response = self.inner.change(&request.key, Some(nonce), ask).await?;
        Ok(response.unwrap_or_else(|| AcquireOutcome::Refused(AcquireRefusal::default())))
    }

    async fn renew(&self, key: &LockKey, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        let renew = |row: &mut Row, _: TokenBase, now: Duration| {
            let goes_on = row.renew(nonce, token, lease, now);
            (goes_on, goes_on.then_some(nonce))
        };
        self.inner.change(key, None, renew).await?.ok_or_else(contended)
    }

    async fn release(&self, key: &LockKey, nonce: Nonce, token: Token) -> Result<bool> {
        let release = |row: &mut Row, _: TokenBase, now| (row.release(nonce, token, now).is_some(), None);
        self.inner.change(key, None, release).await?.ok_or_else(contended)
    }

    async fn withdraw(&self, key: &LockKey, nonce: Nonce) -> Result<()> {
        self.inner.resolve(nonce).await?;
        let withdraw = |row: &mut Row, _: TokenBase, now| {
            _ = row.withdraw(nonce, now);
            ((), None)
        };
        self.inner.change(key, None, withdraw).await?.ok_or_else(contended)
    }

    async fn read(&self, key: &LockKey) -> Result<Option<LockRecord>> {
        Ok(self.inner.newest(key).await?.map(|(row, now)| row.record(key, now)))
    }

    async fn granted(&self, key: &LockKey, nonce: Nonce) -> Result<Option<Token>> {
        self.inner.resolve(nonce).await?;
        Ok(self.inner.newest(key).await?.and_then(|(row, _)| row.granted(nonce)))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<LockRecord>> {
        self.inner.list(query).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<Holder>> {
        let take = |row: &mut Row, token_base: TokenBase, now| {
            (row.force_release(token_base, now).and_then(|(holder, _)| holder), None)
        };
        self.inner.change(key, None, take).await?.ok_or_else(contended)
    }

    async fn raise_floor(&self, floor: Token) -> Result<Token> {
        self.inner.raise_floor(floor).await
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.inner.prune(idle_for, limit).await
    }

    fn subscribe(&self, key: &LockKey) -> Subscription {
        let subscription = self.inner.subscribers.subscribe(key.digest());
        let mut follower = self.follower.lock();
        if follower.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let (inner, from_now) = (Arc::clone(&self.inner), self.inner.table.subscribe().ok());
            *follower = Some(AbortOnDropHandle::new(tokio::spawn(observed::follow(inner, from_now))));
        }
        subscription
    }
}
