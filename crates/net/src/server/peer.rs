//! A connected peer, as the handler sees it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;

use crate::connection::CloseRequest;
use crate::metrics::{self, Side};
use crate::queue::{QueueError, Sender};
use crate::wire::{AnnouncedLimits, Frame, Payload};
use crate::{AllowList, CloseReason, PublicKey, encode};

/// The id of one connection of a peer. A server never uses an id twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub(super) u64);

/// A connected peer. Clones refer to the same connection; a peer may have several connections.
#[derive(Clone)]
pub struct Peer(Arc<PeerInner>);

struct PeerInner {
    id: ConnectionId,
    key: PublicKey,
    role: String,
    role_version: u16,
    address: SocketAddr,
    allow: AllowList,
    max_payload: usize,
    pushes: Sender<Bytes>,
    /// The number of the next push. The lock keeps the numbers in the order of the queue.
    next: Mutex<u64>,
    close_request: CloseRequest,
}

/// The reason why a message was not pushed. No part of it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The peer reads too slowly. The push was dropped and counted; the peer learns that it has missed one.
    #[error("the peer reads too slowly: the push was dropped")]
    Full,
    /// The peer is disconnected.
    #[error("the peer is disconnected")]
    Disconnected,
    /// The message is longer than the peer accepts.
    #[error("a push of {size} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The size of the message in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The value could not be encoded.
    #[error("the value cannot be encoded")]
    Encode,
}

/// The facts about a peer at the end of its handshake.
pub(super) struct Handshake {
    pub(super) key: PublicKey,
    pub(super) role: String,
    pub(super) role_version: u16,
    pub(super) address: SocketAddr,
    pub(super) terms: AnnouncedLimits,
}

impl Peer {
    pub(super) fn new(
        id: ConnectionId,
        handshake: Handshake,
        allow: AllowList,
        pushes: Sender<Bytes>,
        close_request: CloseRequest,
    ) -> Self {
        let Handshake { key, role, role_version, address, terms } = handshake;
        let (max_payload, next) = (terms.max_payload(), Mutex::new(0));
        Self(Arc::new(PeerInner {
            id,
            key,
            role,
            role_version,
            address,
            allow,
            max_payload,
            pushes,
            next,
            close_request,
        }))
    }

    /// Returns the id of the connection.
    pub fn id(&self) -> ConnectionId {
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

    /// Returns the version of the role that both sides use.
    pub fn role_version(&self) -> u16 {
        self.0.role_version
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
    /// many it has missed. To disconnect a slow peer instead, call [`Peer::disconnect`].
    pub fn push(&self, message: &[u8]) -> Result<(), PushError> {
        let (size, limit) = (message.len(), self.0.max_payload);
        if size > limit {
            return Err(PushError::TooLarge { size, limit });
        }
        if self.0.close_request.is_requested() || !self.is_allowed() {
            self.disconnect_for(CloseReason::NotAllowed);
            return Err(PushError::Disconnected);
        }
        let mut next = self.0.next.lock();
        let frame = Frame::Push { number: *next, payload: Payload(message) }.to_bytes();
        let bytes = frame.len();
        let pushed = self.0.pushes.try_send(frame, bytes);
        *next += 1;
        pushed.map_err(|why| match why {
            QueueError::Full => {
                metrics::pushes_dropped(Side::Server, 1);
                PushError::Full
            }
            QueueError::Closed => PushError::Disconnected,
        })
    }

    /// [`Peer::push`] with a typed value.
    pub fn push_value(&self, message: &impl Serialize) -> Result<(), PushError> {
        self.push(&encode(message).map_err(|_| PushError::Encode)?)
    }

    /// Ends the connection. The peer receives the reason, and connects again unless it is no longer allowed.
    pub fn disconnect(&self) {
        self.disconnect_for(CloseReason::Disconnected);
    }

    pub(super) fn disconnect_for(&self, reason: CloseReason) {
        self.0.close_request.request(reason);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerInner { id, key, role, address, .. } = &*self.0;
        write!(f, "Peer({key} as {role:?} from {address}, {id:?})")
    }
}
