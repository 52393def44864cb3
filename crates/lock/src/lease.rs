//! The identity of a holder or contender, and locks that a remote client renews and releases itself.

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::acquisition::Registration;
use crate::queue::QueuePosition;
use crate::{LockKey, Token, clock};

/// The identifier of one acquisition: random, and never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Nonce(Uuid);

impl Nonce {
    pub(crate) fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns the nonce with this number.
    pub const fn new(number: Uuid) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a contender. Decisions depend on the nonce; the name is for display.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// The nonce of this acquisition.
    pub nonce: Nonce,
    /// The displayed name of the process. No decision depends on it.
    pub name: String,
}

/// A lock that its client maintains itself, as the store identifies it: with [`Locks::renew`](crate::Locks::renew) and
/// [`Locks::release`](crate::Locks::release).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    key: LockKey,
    nonce: Nonce,
    token: Token,
}

impl Lease {
    /// Returns the lease with this key, nonce and token.
    pub const fn new(key: LockKey, nonce: Nonce, token: Token) -> Self {
        Self { key, nonce, token }
    }

    /// Returns the key.
    pub const fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns the nonce of the acquisition.
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Returns the fencing token. Pass it to the resource that the lock protects.
    pub const fn token(&self) -> Token {
        self.token
    }
}

/// A lock that was granted to a client that has not received the grant yet.
///
/// If it is dropped, the lock is released in the background: the client is gone. Call [`accept`](Self::accept) when the
/// client has received the grant; from then on the library neither renews nor releases the lock.
#[derive(Debug)]
#[must_use = "a detached lease that is not accepted is released"]
pub struct DetachedLease {
    lease: Lease,
    valid_until: Duration,
    /// Releases the lock when it is dropped.
    registration: Registration,
    /// The position in this process's queue.
    _position: Option<QueuePosition>,
}

impl DetachedLease {
    pub(crate) fn new(
        registration: Registration,
        position: Option<QueuePosition>,
        token: Token,
        valid_until: Duration,
    ) -> Self {
        let lease = Lease::new(registration.key.clone(), registration.owner.nonce, token);
        Self { lease, valid_until, registration, _position: position }
    }

    /// Returns the lease.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns how long the store cannot grant the lock to another client, without a renewal.
    pub fn valid_for(&self) -> Duration {
        self.valid_until.saturating_sub(clock::now())
    }

    /// Confirms that the client has received the grant, and returns the lease.
    pub fn accept(mut self) -> Lease {
        self.registration.may_be_recorded = false;
        self.lease.clone()
    }
}
