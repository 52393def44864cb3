//! Locks in a ledger: rows of a table that all its nodes replicate. It needs no other store.
//!
//! ```text
//! table.rs    all that is asked of a ledger      entry.rs   what a row says of a lock
//! observed.rs when we first saw what             ground.rs  the one row: era and floor
//! unsure.rs   bids whose outcome is not known    follow.rs  hearing that a lock was let go
//! sweep.rs    what is done to many at once       node.rs    the node of a ledger, as a table
//! sought.rs   the same, if it has yet to join
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
//! - Every grant expects the token base to be as it was read. No grant is made in an earlier fencing epoch, or below
//!   the tokens of pruned locks.
//! - A transaction has one id. If its outcome is unknown, it is submitted again under that id. The outcome of a bid is
//!   resolved before any other operation for its nonce.
//!
//! # What is not promised
//!
//! A process that has just started to observe a lock waits a whole lease for a dead holder. A client that may write to
//! the ledger can write any token or fencing epoch into it.

mod entry;
mod follow;
mod ground;
mod node;
mod observed;
mod sought;
mod sweep;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod unsure;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use holdoff_ledger::TxId;
use holdoff_ledger::machine::{self, Command, Commands, Value};
use holdoff_policy::{Failure, Growth, Jitter, Policy, SoFar};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::row::{Ground, Row};
use crate::store::{Answer, Bid, Held, LeaseStore, Listing, Result};
use crate::wakes::{Subscription, Wakes};
use crate::{Error, Holder, Key, LockRecord, Nonce, Token, clock};

use entry::{Entry, Writing};
use observed::Observed;
pub(crate) use sought::Sought;
use table::{Fresh, Said, Table, trouble};
use unsure::Unsure;

/// The prefix of the names of locks' rows. The digest follows.
const PREFIX: &str = "holdoff/lock/";
/// The maximum number of attempts of one call after write conflicts.
const TRIES: u32 = 16;
/// The maximum number of waiters recorded in a row. A waiter beyond it asks again like the others, but gets no
/// reservation.
const MOST_WAITERS: usize = 64;
/// How long a refusal waits until the waiter is recorded. After that the transaction continues by itself, and the next
/// bid of the nonce settles it: a refusal need not be delayed.
const NOTING: Duration = Duration::from_millis(50);
/// The increment of the maximum pause with each repetition of a call or of a query for its outcome.
const STEP: Duration = Duration::from_millis(2);

/// A ledger that keeps locks.
#[derive(Debug)]
pub(crate) struct Ledger {
    inner: Arc<Inner>,
    following: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    table: Box<dyn Table>,
    observed: Mutex<Observed>,
    unsure: Unsure,
    wakes: Wakes,
}

/// A lock, as it was read.
struct Seen {
    /// The last index of the history that the read includes.
    index: u64,
    /// The time at which the response arrived.
    came: Duration,
    lock: Option<(Value, Entry, Row)>,
    ground: (Option<Value>, Ground),
}

impl Ledger {
    /// Returns the locks of this table.
    pub(crate) fn over(table: Box<dyn Table>) -> Self {
        let (observed, unsure, wakes) = (Mutex::default(), Unsure::default(), Wakes::default());
        Self { inner: Arc::new(Inner { table, observed, unsure, wakes }), following: Mutex::default() }
    }
}

impl Inner {
    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self, key: &Key, fresh: Fresh) -> Result<Seen> {
        let gets = vec![Command::Get(name(key)?), Command::Get(ground::key()?)];
        let (index, values) = self.table.read(gets, fresh).await?;
        let came = clock::now();
        let [value, ground] = <[_; 2]>::try_from(values).map_err(|_| trouble(false, "not two answers"))?;
        let lock = match value {
            Some(value) => {
                let entry = Entry::read(&value)?;
                let row = self.observed().look(key.digest(), &entry, came);
                Some((value, entry, row))
            }
            None => None,
        };
        let read = ground::read(ground.as_ref())?;
        Ok(Seen { index, came, lock, ground: (ground, read) })
    }

    /// Changes a lock. `change` returns the response, and the nonce whose lease starts again. The first attempt uses
    /// this node's local copy, which is most likely the newest, unless other clients want the lock, too. If it is
    /// stale, the transaction detects it, which takes longer than a read of the newest row. Returns `None` if other
    /// clients were faster at every attempt.
    async fn change<T>(
        &self,
        key: &Key,
        bidder: Option<Nonce>,
        mut change: impl FnMut(&mut Row, Ground, Duration) -> (T, Option<Nonce>),
    ) -> Result<Option<T>> {
        for tried in 0..TRIES {
            let fresh = if tried == 0 { Fresh::AtHand } else { Fresh::Newest };
            let seen = self.look(key, fresh).await?;
            let is_contended = seen.lock.as_ref().is_some_and(|(_, entry, _)| entry.is_contended(bidder));
            if fresh == Fresh::AtHand && is_contended {
                continue;
            }
            let mut row = seen.lock.as_ref().map_or_else(|| Row::new(seen.came), |(_, _, row)| row.clone());
            let (answer, renews) = change(&mut row, seen.ground.1, seen.came);
            let Some((entry, commands)) = seen.write(key, &row, renews)? else {
                if fresh == Fresh::Newest {
                    return Ok(Some(answer));
                }
                continue;
            };
            let said = match (bidder, renews) {
                (Some(nonce), Some(_)) => self.submit_bid(nonce, commands).await?,
                (Some(nonce), None) => {
                    let noting = self.submit_bid(nonce, commands);
                    let Ok(said) = tokio::time::timeout(NOTING, noting).await else {
                        return Ok(Some(answer));
                    };
                    said?
                }
                (None, _) => self.submit(commands).await?,
            };
            if said == Said::Done {
                self.observed().look(key.digest(), &entry, clock::now());
                return Ok(Some(answer));
            }
            pause(tried).await;
        }
        Ok(None)
    }

    /// Submits a transaction until its outcome is known.
    async fn submit(&self, commands: Commands) -> Result<Said> {
        self.insist(TxId(Uuid::new_v4().as_u128()), commands).await
    }

    /// Submits a transaction like [`Self::submit`], and records it, so that its outcome can be resolved after a
    /// cancellation.
    async fn submit_bid(&self, nonce: Nonce, commands: Commands) -> Result<Said> {
        let tx_id = TxId(Uuid::new_v4().as_u128());
        self.unsure.note(nonce, tx_id, &commands);
        let said = self.insist(tx_id, commands).await?;
        self.unsure.settle(nonce);
        Ok(said)
    }

    async fn insist(&self, tx_id: TxId, commands: Commands) -> Result<Said> {
        for tried in 1.. {
            match self.table.submit(tx_id, commands.clone()).await? {
                Said::Unknown => pause(tried).await,
                said => return Ok(said),
            }
        }
        Ok(Said::Unknown)
    }

    /// Resolves a bid of this nonce whose outcome is unknown. After that it cannot take effect later.
    async fn settle(&self, nonce: Nonce) -> Result<()> {
        if let Some((tx_id, commands)) = self.unsure.get(nonce) {
            self.insist(tx_id, commands).await?;
            self.unsure.settle(nonce);
        }
        Ok(())
    }

    async fn newest(&self, key: &Key) -> Result<Option<(Row, Duration)>> {
        let seen = self.look(key, Fresh::Newest).await?;
        Ok(seen.lock.map(|(_, _, row)| (row, seen.came)))
    }
}

impl Seen {
    /// Returns the commands that write the changed row; `None` if the row is unchanged.
    fn write(&self, key: &Key, row: &Row, renews: Option<Nonce>) -> Result<Option<(Entry, Commands)>> {
        let before = self.lock.as_ref().map(|(_, entry, row)| (entry, row));
        let writing = Writing { version: self.index + 1, now: self.came, renews, written_s: clock::wall_s() };
        let entry = Entry::written(key, row, before, writing);
        let is_same = before.map_or(!entry.is_in_use(), |(before, _)| before.says_the_same(&entry));
        if is_same {
            return Ok(None);
        }
        let (expected, new) = (self.lock.as_ref().map(|(value, _, _)| value.clone()), Some(entry.value()?));
        let mut commands = vec![Command::CompareAndSet { key: name(key)?, expected, new }];
        if before.is_none_or(|(before, _)| before.token != entry.token) {
            commands.push(ground::is_still(self.ground.0.clone())?);
        }
        Ok(Some((entry, commands)))
    }
}

/// Returns the name of a lock's row.
fn name(key: &Key) -> Result<machine::Key> {
    machine::Key::new(format!("{PREFIX}{}", key.hex())).map_err(|error| trouble(false, error))
}

/// Returns the digest of a lock in hexadecimal digits; `None` if this is not the name of a lock's row.
fn hex_of(name: &machine::Key) -> Option<&str> {
    name.as_str().strip_prefix(PREFIX).filter(|hex| hex.len() == 64)
}

fn digest_of(name: &machine::Key) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    for (byte, digits) in digest.iter_mut().zip(hex_of(name)?.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// Pauses, so that contenders do not stay in step. After the first attempt there is no pause: only the local copy was
/// stale.
async fn pause(tried: u32) {
    if tried > 0 {
        let policy = policy();
        let decision = policy.decide(&SoFar::after(tried), &Failure::transient(), clock::roll());
        tokio::time::sleep(decision.delay().unwrap_or(policy.cap())).await;
    }
}

fn policy() -> Policy {
    let builder = Policy::builder(Growth::linear(STEP, STEP)).jitter(Jitter::Full).cap(STEP * TRIES);
    // These numbers are valid; a test checks it.
    builder.attempts(Policy::UNLIMITED).build().unwrap_or_else(|_| Policy::standard())
}

fn contended() -> Error {
    trouble(true, "others changed the same lock again and again")
}

/// Returns how long to record the waiter: twice the requested time, so that not every bid must write. Returns zero if
/// an earlier record still lasts for the requested time.
fn noted_for(row: &Row, bid: &Bid, now: Duration) -> Option<Duration> {
    let waits = bid.waits?;
    let live = || row.line.iter().filter(|waiter| waiter.until > now);
    match live().find(|waiter| waiter.nonce == bid.owner.nonce) {
        Some(noted) if noted.until.saturating_sub(now) >= waits => Some(Duration::ZERO),
        None if live().count() >= MOST_WAITERS => None,
        _ => Some(waits.saturating_mul(2)),
    }
}

#[async_trait]
impl LeaseStore for Ledger {
    async fn try_acquire(&self, bid: &Bid) -> Result<Answer> {
        let nonce = bid.owner.nonce;
        self.inner.settle(nonce).await?;
        let ask = |row: &mut Row, ground: Ground, now: Duration| {
            let waits = noted_for(row, bid, now);
            let answer = row.bid(&bid.owner, bid.lease, waits, ground, now);
            let renews = matches!(answer, Answer::Granted(_)).then_some(nonce);
            (answer, renews)
        };
        let answer = self.inner.change(&bid.key, Some(nonce), ask).await?;
        Ok(answer.unwrap_or_else(|| Answer::Held(Held::default())))
    }

    async fn renew(&self, key: &Key, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        let renew = |row: &mut Row, _: Ground, now: Duration| {
            let goes_on = row.renew(nonce, token, lease, now);
            (goes_on, goes_on.then_some(nonce))
        };
        self.inner.change(key, None, renew).await?.ok_or_else(contended)
    }

    async fn release(&self, key: &Key, nonce: Nonce, token: Token) -> Result<bool> {
        let let_go = |row: &mut Row, _: Ground, now| (row.release(nonce, token, now).is_some(), None);
        self.inner.change(key, None, let_go).await?.ok_or_else(contended)
    }

    async fn withdraw(&self, key: &Key, nonce: Nonce) -> Result<()> {
        self.inner.settle(nonce).await?;
        let wipe_out = |row: &mut Row, _: Ground, now| {
            _ = row.withdraw(nonce, now);
            ((), None)
        };
        self.inner.change(key, None, wipe_out).await?.ok_or_else(contended)
    }

    async fn read(&self, key: &Key) -> Result<Option<LockRecord>> {
        Ok(self.inner.newest(key).await?.map(|(row, now)| row.record(key, now)))
    }

    async fn granted(&self, key: &Key, nonce: Nonce) -> Result<Option<Token>> {
        self.inner.settle(nonce).await?;
        Ok(self.inner.newest(key).await?.and_then(|(row, _)| row.granted(nonce)))
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<LockRecord>> {
        self.inner.list(listing).await
    }

    async fn force_release(&self, key: &Key) -> Result<Option<Holder>> {
        let take = |row: &mut Row, ground: Ground, now| {
            (row.force_release(ground, now).and_then(|(holder, _)| holder), None)
        };
        self.inner.change(key, None, take).await?.ok_or_else(contended)
    }

    async fn raise_era(&self) -> Result<u64> {
        self.inner.raise_era().await
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        self.inner.prune(idle_for, limit).await
    }

    fn subscribe(&self, key: &Key) -> Subscription {
        let subscription = self.inner.wakes.subscribe(key.digest());
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        if following.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let (inner, from_now) = (Arc::clone(&self.inner), self.inner.table.follow().ok());
            *following = Some(AbortOnDropHandle::new(tokio::spawn(follow::run(inner, from_now))));
        }
        subscription
    }
}
