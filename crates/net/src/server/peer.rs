//! A connected peer, as the handler sees it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::connection::Cut;
use crate::metrics::{self, Side};
use crate::queue::{NotTaken, Sender};
use crate::wire::{Frame, Payload, Terms};
use crate::{Allow, PublicKey, Refusal};

/// The id of one connection of a peer. A server never uses an id twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub(super) u64);

/// A connected peer. Clones refer to the same connection; a peer may have several connections.
#[derive(Clone)]
pub struct Peer(Arc<Inner>);

struct Inner {
    id: PeerId,
    key: PublicKey,
    role: String,
    address: SocketAddr,
    allow: Allow,
    max_payload: usize,
    pushes: Sender<Bytes>,
    /// The number of the next push. The lock keeps the numbers in the order of the queue.
    next: Mutex<u64>,
    cut: Cut,
}

/// The reason why a message was not pushed. No part of it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotPushed {
    /// The peer reads too slowly. The push was dropped and counted; the peer learns that it has missed one.
    #[error("the peer reads too slowly: the push was dropped")]
    Full,
    /// The peer is disconnected.
    #[error("the peer is gone")]
    Gone,
    /// The message is longer than the peer accepts.
    #[error("a push of {size} bytes is too large: {limit} are the most")]
    TooLarge {
        /// The size of the message in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The value could not be encoded.
    #[error("this value cannot be sent")]
    Unwritable,
}

/// The facts about a peer at the end of its handshake.
pub(super) struct Arrival {
    pub(super) key: PublicKey,
    pub(super) role: String,
    pub(super) address: SocketAddr,
    pub(super) terms: Terms,
}

impl Peer {
    pub(super) fn new(id: PeerId, arrival: Arrival, allow: Allow, pushes: Sender<Bytes>, cut: Cut) -> Self {
        let Arrival { key, role, address, terms } = arrival;
        let (max_payload, next) = (terms.max_payload(), Mutex::new(0));
        Self(Arc::new(Inner { id, key, role, address, allow, max_payload, pushes, next, cut }))
    }

    /// Returns the id of the connection.
    pub fn id(&self) -> PeerId {
        self.0.id
    }

    /// Returns the peer's public key, proved at the handshake.
    pub fn key(&self) -> PublicKey {
        self.0.key
    }

    /// Returns the role that the peer claims. The server does not check whether the key is entitled to it.
    pub fn role(&self) -> &str {
        &self.0.role
    }

    /// Returns the address that the peer connects from. It proves nothing.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Returns whether the peer is still on the allow list.
    pub fn is_allowed(&self) -> bool {
        self.0.allow.allows(&self.0.key)
    }

    /// Queues a message for the peer, if there is room. Never waits.
    ///
    /// Pushes arrive in the order in which they were queued. Pushes without room are dropped, and the peer learns how
    /// many it has missed. To disconnect a slow peer instead, call [`Peer::cut`].
    pub fn push(&self, message: &[u8]) -> Result<(), NotPushed> {
        let (size, limit) = (message.len(), self.0.max_payload);
        if size > limit {
            return Err(NotPushed::TooLarge { size, limit });
        }
        if self.0.cut.is_cut() || !self.is_allowed() {
            self.cut_for(Refusal::NotAllowed);
            return Err(NotPushed::Gone);
        }
        let mut next = self.0.next.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = Frame::Push { number: *next, payload: Payload(message) }.to_bytes();
        let bytes = frame.len();
        let pushed = self.0.pushes.try_send(frame, bytes);
        *next += 1;
        pushed.map_err(|why| match why {
            NotTaken::Full => {
                metrics::pushes_dropped(Side::Server, 1);
                NotPushed::Full
            }
            NotTaken::Gone => NotPushed::Gone,
        })
    }

    /// Ends the connection. The peer is told that it was cut off, and connects again unless it is no longer allowed.
    pub fn cut(&self) {
        self.cut_for(Refusal::Cut);
    }

    pub(super) fn cut_for(&self, reason: Refusal) {
        self.0.cut.cut(reason);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { id, key, role, address, .. } = &*self.0;
        write!(f, "Peer({key} as {role:?} from {address}, {id:?})")
    }
}
