//! A peer that is connected, as the handler sees it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::connection::Cut;
use crate::metrics::{self, Side};
use crate::queue::{NotTaken, Sender};
use crate::wire::{Frame, Payload, Terms};
use crate::{Allow, PublicKey, Refusal};

/// One connection of a peer; never used again by the same server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub(super) u64);

/// A connected peer. Clones are the same connection; a peer may have several.
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
    /// The number of the next push. The lock keeps numbers and queue in one order.
    next: Mutex<u64>,
    cut: Cut,
}

/// Why something was not pushed. Nothing of it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotPushed {
    /// The peer reads too slowly: this one was dropped and counted, and the peer will know that it has missed one.
    #[error("the peer reads too slowly: the push was dropped")]
    Full,
    /// The peer is gone.
    #[error("the peer is gone")]
    Gone,
    /// The message is longer than the peer reads.
    #[error("a push of {size} bytes is too large: {limit} are the most")]
    TooLarge {
        /// How long it is.
        size: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The value cannot be written as bytes.
    #[error("this value cannot be sent")]
    Unwritable,
}

/// What is known of a peer when it is let in.
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

    /// Which connection this is.
    pub fn id(&self) -> PeerId {
        self.0.id
    }

    /// Who it is, proved at the handshake.
    pub fn key(&self) -> PublicKey {
        self.0.key
    }

    /// What it says it is: a claim, which the key may or may not be entitled to.
    pub fn role(&self) -> &str {
        &self.0.role
    }

    /// Where it connects from, which proves nothing.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Whether it is still allowed to be here.
    pub fn is_allowed(&self) -> bool {
        self.0.allow.allows(&self.0.key)
    }

    /// Sends the peer a message, if there is room in its queue. Never waits.
    ///
    /// Pushes arrive in the order they were pushed. Those for which there is no room are dropped, and the peer hears how
    /// many it has missed; whoever would rather have it gone calls [`Peer::cut`].
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

    /// Ends the connection. The peer is told that it was cut, and will come back unless it is no longer allowed.
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
