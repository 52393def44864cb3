//! The interface of a store.
//!
//! Every call is one compare-and-set and one transaction. Leases are measured by the store's own clock; no wall clocks
//! are compared. An engine does not decide when to ask again: one loop above all engines does. `row.rs` is a pure model
//! of this interface, and one suite, `tests/it/conformance`, runs against every engine.

use std::time::Duration;

use async_trait::async_trait;

use crate::notify::Subscription;
use crate::{Error, LockKey, Nonce, Owner, Token};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct AcquireRequest {
    pub(crate) key: LockKey,
    pub(crate) owner: Owner,
    pub(crate) lease: Duration,
    /// How long the contender counts as waiting if the lock is not granted: the time within which it will ask again.
    /// `None` if it will not wait.
    pub(crate) waits_for: Option<Duration>,
}

/// The response to a request for a lock.
#[derive(Clone, Debug)]
pub(crate) enum AcquireOutcome {
    /// The lock was granted. Its lease starts when the store received the request.
    Granted(Token),
    /// The lock was refused.
    Refused(AcquireRefusal),
}

/// The reason why a lock was refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct AcquireRefusal {
    /// The holder; `None` if the lock is free, but reserved for a contender that has waited longer.
    pub(crate) holder: Option<Holder>,
    /// The time until the lease expires without a renewal, or until the reservation ends.
    pub(crate) free_in: Duration,
    /// The approximate number of waiters, including this one; 0 if the engine does not record waiters.
    pub(crate) waiting: u32,
}

/// The holder of a lock.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Holder {
    /// The identity of the holder.
    pub owner: Owner,
    /// The fencing token.
    pub token: Token,
    /// The time since the grant.
    pub held_for: Duration,
    /// The time until the lease expires without a renewal.
    pub ends_in: Duration,
}

/// The state of a lock.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct LockRecord {
    /// The namespace.
    pub namespace: String,
    /// The key, in its readable form.
    pub key: String,
    /// The SHA-256 that identifies the lock, in hexadecimal digits.
    pub digest: String,
    /// The highest token ever granted.
    pub token: Token,
    /// The holder; `None` if the lock is free, or its lease has expired.
    pub holder: Option<Holder>,
    /// The approximate number of waiters.
    pub waiting: u32,
}

/// The selection, position and limit of a listing.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListQuery {
    pub(crate) namespace: Option<String>,
    /// Selects only held locks.
    pub(crate) held: bool,
    /// Selects only locks whose readable key starts with this prefix.
    pub(crate) prefix: String,
    /// Selects only locks after this one.
    pub(crate) after: Option<ListCursor>,
    pub(crate) limit: u32,
}

/// The position of a lock in a listing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ListCursor {
    pub(crate) namespace: String,
    pub(crate) key: String,
    /// In hexadecimal digits, whose order is the order of the bytes.
    pub(crate) digest: String,
}

impl ListQuery {
    /// Returns the selected locks, in the order of a listing. For engines that cannot select in the store.
    pub(crate) fn select(&self, records: impl Iterator<Item = LockRecord>) -> Vec<LockRecord> {
        let mut selected: Vec<LockRecord> = records
            .filter(|record| self.namespace.as_ref().is_none_or(|namespace| record.namespace == *namespace))
            .filter(|record| record.key.starts_with(&self.prefix))
            .filter(|record| !self.held || record.holder.is_some())
            .filter(|record| self.after.as_ref().is_none_or(|cursor| record.cursor() > *cursor))
            .collect();
        selected.sort_by_cached_key(LockRecord::cursor);
        selected.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
        selected
    }
}

impl LockRecord {
    /// Returns the position of this lock in a listing.
    fn cursor(&self) -> ListCursor {
        let (namespace, key, digest) = (self.namespace.clone(), self.key.clone(), self.digest.clone());
        ListCursor { namespace, key, digest }
    }
}

/// A store of leases.
///
/// If a lock is released while contenders wait, the store reserves it for the longest-waiting contender for
/// [`RESERVATION`]. In that time the store grants it to no other contender, so that the previous holder cannot take it
/// back before the notified waiters can ask.
#[async_trait]
pub(crate) trait LeaseStore: Send + Sync + std::fmt::Debug {
    /// Grants the lock if it is free, if its lease has expired, or if this nonce already holds it. In the last case the
    /// token stays the same and the lease starts again: the response to an earlier call was lost. Otherwise records the
    /// contender as a waiter. Each grant to a new nonce raises the token.
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome>;

    /// Extends the lease to this length from now. Returns false, and changes nothing, if another nonce or token holds
    /// the lock, or it is free. An expired lease may be renewed if the lock was not granted again.
    async fn renew(&self, key: &LockKey, nonce: Nonce, token: Token, lease: Duration) -> Result<bool>;

    /// Releases the lock, and notifies the next waiter. Returns false, and changes nothing, if this nonce and token do
    /// not hold it.
    async fn release(&self, key: &LockKey, nonce: Nonce, token: Token) -> Result<bool>;

    /// Removes all state of a nonce: it no longer waits. If a call whose response was lost granted it the lock,
    /// releases it.
    async fn withdraw(&self, key: &LockKey, nonce: Nonce) -> Result<()>;

    /// Returns the state of a lock; `None` if it was never held, or has been pruned.
    async fn read(&self, key: &LockKey) -> Result<Option<LockRecord>>;

    /// Returns the token with which this nonce holds the lock, if it does: the outcome of a call whose response was
    /// lost.
    async fn granted(&self, key: &LockKey, nonce: Nonce) -> Result<Option<Token>>;

    /// Returns locks, ordered by namespace and key.
    async fn list(&self, query: &ListQuery) -> Result<Vec<LockRecord>>;

    /// Takes the lock from its holder and raises the token, so that writes of the previous holder are rejected from now
    /// on. Returns the previous holder, if there was one.
    async fn force_release(&self, key: &LockKey) -> Result<Option<Holder>>;

    /// Raises the floor: every later token is above it. A floor below the present one changes nothing. Returns the
    /// floor from now on.
    async fn raise_floor(&self, floor: Token) -> Result<Token>;

    /// Prunes at most `limit` locks that were neither held nor requested for `idle_for`. Tokens of new locks start
    /// above theirs. Returns the number pruned.
    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64>;

    /// Subscribes to releases of this lock, from now on. Notifications are hints: any may be missed.
    fn subscribe(&self, key: &LockKey) -> Subscription;
}

/// The duration of the reservation for the longest-waiting contender after a release.
pub(crate) const RESERVATION: Duration = Duration::from_millis(100);
