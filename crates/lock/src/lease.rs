//! Locks that somebody else keeps: a client elsewhere, who renews and releases by itself.

use std::time::Duration;

use crate::line::Place;
use crate::pursuit::Wish;
use crate::{Key, Nonce, Token, clock};

/// A lock that somebody keeps himself, as it is named to the store: with
/// [`Locks::renew`](crate::Locks::renew) and [`Locks::release`](crate::Locks::release).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    key: Key,
    nonce: Nonce,
    token: Token,
}

impl Lease {
    /// What was handed over as this.
    pub const fn new(key: Key, nonce: Nonce, token: Token) -> Self {
        Self { key, nonce, token }
    }

    /// What is locked.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Which acquisition it was.
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The fencing token: give it to whatever the lock protects.
    pub const fn token(&self) -> Token {
        self.token
    }
}

/// A lock that was granted to somebody who has not heard of it yet.
///
/// Dropping it lets the lock go, in the background: whoever it was for is gone. [`accept`](Self::accept) it when it
/// was heard; from then on nothing here renews it or lets it go.
#[derive(Debug)]
#[must_use = "a lock that nobody accepts is let go"]
pub struct Handover {
    lease: Lease,
    valid_until: Duration,
    /// What lets go.
    wish: Wish,
    /// The turn of this process.
    _place: Option<Place>,
}

impl Handover {
    pub(crate) fn new(wish: Wish, place: Option<Place>, token: Token, valid_until: Duration) -> Self {
        let lease = Lease::new(wish.key.clone(), wish.owner.nonce, token);
        Self { lease, valid_until, wish, _place: place }
    }

    /// What is handed over.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// For how long nobody else can be granted it, unless it is renewed.
    pub fn valid_for(&self) -> Duration {
        self.valid_until.saturating_sub(clock::now())
    }

    /// It was heard.
    pub fn accept(mut self) -> Lease {
        self.wish.was_asked = false;
        self.lease.clone()
    }
}
