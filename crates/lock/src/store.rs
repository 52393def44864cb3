//! What a store must do.
//!
//! Every call is one compare-and-set, and one transaction. The clock that leases are measured with is the store's
//! own; nothing here compares wall clocks. An engine decides nothing about when to ask again: one loop above does.
//! `row.rs` says the same as a pure model; one suite, `tests/it/conformance`, runs against every engine.

use std::time::Duration;

use async_trait::async_trait;

use crate::wakes::Subscription;
use crate::{Error, Key, Nonce, Owner, Token};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// A wish for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Bid {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) lease: Duration,
    /// If it is not granted: for how long it counts as waiting, that is, until when it will surely have asked again.
    /// Nothing if it will not wait.
    pub(crate) waits: Option<Duration>,
}

/// What a store says to a bid.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// It is yours: its lease runs from when the store was asked.
    Granted(Token),
    /// It is not.
    Held(Held),
}

/// Why a lock was not granted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    /// Whose it is; nothing if it is free, but kept a moment for one that waits longer.
    pub(crate) holder: Option<Holder>,
    /// When the lease ends unless it is renewed, or when the moment is over.
    pub(crate) free_in: Duration,
    /// About how many wait, this one included; 0 if the engine does not know.
    pub(crate) waiting: u32,
}

/// Who holds a lock.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Holder {
    /// The holder.
    pub owner: Owner,
    /// Its fencing token.
    pub token: Token,
    /// How long it has had it.
    pub held_for: Duration,
    /// When its lease ends unless it is renewed.
    pub ends_in: Duration,
}

/// What is known of a lock.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct LockRecord {
    /// Where it belongs.
    pub namespace: String,
    /// Its key, as far as people can read it.
    pub key: String,
    /// The SHA-256 it is known by, in hexadecimal digits.
    pub digest: String,
    /// The highest token ever granted.
    pub token: Token,
    /// Who has it; nothing if it is free, or its lease is over.
    pub holder: Option<Holder>,
    /// About how many wait.
    pub waiting: u32,
}

/// Which locks to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) namespace: Option<String>,
    /// Only those that somebody holds.
    pub(crate) held: bool,
    /// Only those whose readable key begins so.
    pub(crate) prefix: String,
    /// Only those behind this one.
    pub(crate) after: Option<Mark>,
    pub(crate) limit: u32,
}

/// Where a lock stands in a list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Mark {
    pub(crate) namespace: String,
    pub(crate) key: String,
    /// In hexadecimal digits, which are in the order of the bytes.
    pub(crate) digest: String,
}

impl LockRecord {
    /// Whether it stands behind this one.
    pub(crate) fn is_after(&self, mark: &Mark) -> bool {
        (&self.namespace, &self.key, &self.digest) > (&mark.namespace, &mark.key, &mark.digest)
    }
}

/// Keeps leases.
///
/// A lock that is let go while somebody waits is kept for the one that has waited longest, for
/// [`HEADSTART`]: nobody else is granted it meanwhile, so that whoever just let it go cannot take it again before
/// those who were told of it can ask.
#[async_trait]
pub(crate) trait LeaseStore: Send + Sync + std::fmt::Debug {
    /// Grants the lock if it is free, if its lease is over, or if this very nonce has it already (then with the same
    /// token and a new lease: the answer to an earlier call was lost). Otherwise notes that somebody waits.
    /// Each grant to a new nonce raises the token.
    async fn try_acquire(&self, bid: &Bid) -> Result<Answer>;

    /// Makes the lease last for so long from now. Answers false, and changes nothing, if the lock belongs to another
    /// nonce or token, or to nobody. A lease that is over but was taken by nobody may be renewed.
    async fn renew(&self, key: &Key, nonce: Nonce, token: Token, lease: Duration) -> Result<bool>;

    /// Lets go, and tells the next. Answers false, and changes nothing, if it was not this nonce's and token's.
    async fn release(&self, key: &Key, nonce: Nonce, token: Token) -> Result<bool>;

    /// Wipes out every trace of a nonce: it waits no more, and if a lost call granted it the lock, it lets go.
    async fn withdraw(&self, key: &Key, nonce: Nonce) -> Result<()>;

    /// What is known of a lock; nothing if it was never held, or is forgotten.
    async fn read(&self, key: &Key) -> Result<Option<LockRecord>>;

    /// Whether this nonce has the lock, and with which token: what became of a call whose answer was lost.
    async fn granted(&self, key: &Key, nonce: Nonce) -> Result<Option<Token>>;

    /// Locks, by namespace and key.
    async fn list(&self, listing: &Listing) -> Result<Vec<LockRecord>>;

    /// Takes the lock from whoever has it, raising the token, so that its writes are refused from now on. Answers
    /// who had it; nothing if nobody.
    async fn force_release(&self, key: &Key) -> Result<Option<Holder>>;

    /// Raises the era: every token from now on is above every token before, also above those that this store has
    /// forgotten because it was restored from a backup. Answers the new era.
    async fn raise_era(&self) -> Result<u64>;

    /// Forgets at most `limit` locks that nobody has held or asked for since so long; tokens of new ones start above
    /// theirs. Answers how many.
    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64>;

    /// Hears of this lock being let go, from now on. What it hears is a hint: any may be missed.
    fn subscribe(&self, key: &Key) -> Subscription;
}

/// How long a lock that was let go is kept for the one that waits longest.
pub(crate) const HEADSTART: Duration = Duration::from_millis(100);
