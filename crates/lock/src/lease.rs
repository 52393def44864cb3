//! Locks that a remote client renews and releases itself.

use std::time::Duration;

use crate::line::Place;
use crate::pursuit::Wish;
use crate::{Key, Nonce, Token, clock};

/// A lock that its client maintains itself, as the store identifies it: with [`Locks::renew`](crate::Locks::renew) and
/// [`Locks::release`](crate::Locks::release).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    key: Key,
    nonce: Nonce,
    token: Token,
}

impl Lease {
    /// Returns the lease with this key, nonce and token.
    pub const fn new(key: Key, nonce: Nonce, token: Token) -> Self {
        Self { key, nonce, token }
    }

    /// Returns the key.
    pub const fn key(&self) -> &Key {
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
#[must_use = "a lock that nobody accepts is let go"]
pub struct Handover {
    lease: Lease,
    valid_until: Duration,
    /// Releases the lock when it is dropped.
    wish: Wish,
    /// The turn in this process's queue.
    _place: Option<Place>,
}

impl Handover {
    pub(crate) fn new(wish: Wish, place: Option<Place>, token: Token, valid_until: Duration) -> Self {
        let lease = Lease::new(wish.key.clone(), wish.owner.nonce, token);
        Self { lease, valid_until, wish, _place: place }
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
        self.wish.was_asked = false;
        self.lease.clone()
    }
}
