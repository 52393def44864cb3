//! The server's end of connections.

mod admission;
mod peer;
mod session;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::{CloseReason, Error, HandlerError, PublicKey, SecretKey, ServerOptions, clock, tls};
use admission::{Admission, ConnectionTable};

pub use peer::{ConnectionId, Peer, PushError};

/// The application of a server: handles the requests and messages of peers.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers a request.
    ///
    /// The requests of one peer run concurrently, as many as the limits allow, in any order. A call that has begun runs
    /// to its end, also if the peer gives up or disconnects, or the server shuts down. A panic is answered with an
    /// error.
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, HandlerError>;

    /// Handles a message that expects no reply. The messages of one peer are handled one after the other, in the order
    /// in which they were sent, and nothing else is read from that peer meanwhile. A message that has begun is handled
    /// to its end, as a call is.
    async fn on_message(&self, peer: &Peer, message: Bytes) {
        drop((peer, message));
    }

    /// Notifies the handler that a peer has connected. Must not block.
    fn on_connect(&self, peer: &Peer) {
        let _ = peer;
    }

    /// Notifies the handler that a peer has disconnected. The peer sends nothing more, though a call of it may still
    /// run; its answer is discarded. Must not block.
    fn on_disconnect(&self, peer: &Peer) {
        let _ = peer;
    }
}

/// Several servers may share one handler.
#[async_trait]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        (**self).call(peer, request).await
    }

    async fn on_message(&self, peer: &Peer, message: Bytes) {
        (**self).on_message(peer, message).await;
    }

    fn on_connect(&self, peer: &Peer) {
        (**self).on_connect(peer);
    }

    fn on_disconnect(&self, peer: &Peer) {
        (**self).on_disconnect(peer);
    }
}

/// A running server. Dropping it disconnects every peer.
pub struct Server {
    key: PublicKey,
    address: SocketAddr,
    connections: Arc<ConnectionTable>,
    tasks: TaskTracker,
    leaving: CancellationToken,
    _closed: DropGuard,
}

impl Server {
    /// Starts a server that listens at this address, such as `0.0.0.0:7878`. Port 0 selects a free port.
    pub async fn start(
        key: &SecretKey,
        address: &str,
        handler: impl Handler,
        options: ServerOptions,
    ) -> Result<Self, Error> {
        options.check()?;
        let tls = tls::server(key).map_err(|why| Error::Options(why.to_string()))?;
        let failed = |source| Error::Listen { address: address.to_owned(), source };
        let listener = options.transport.listen(address).await.map_err(failed)?;
        let address = listener.address().map_err(failed)?;
        let connections = Arc::new(ConnectionTable::new(&options));
        let (tasks, leaving, closed) =
            (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let admission = Admission {
            tls,
            options,
            handler: Arc::new(handler),
            connections: connections.clone(),
            tasks: tasks.clone(),
            leaving: leaving.clone(),
            closed: closed.clone(),
        };
        tokio::spawn(Arc::new(admission).accept_all(listener));
        Ok(Self { key: key.public(), address, connections, tasks, leaving, _closed: closed.drop_guard() })
    }

    /// Returns the public key of the server.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Returns the address that the server listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the peers connected now, in the order in which they connected.
    pub fn peers(&self) -> Vec<Peer> {
        self.connections.all()
    }

    /// Returns a function that lists the connected peers, as [`peers`](Self::peers) does. The function does not keep
    /// the server running.
    pub fn peer_lister(&self) -> impl Fn() -> Vec<Peer> + Clone + Send + Sync + 'static + use<> {
        let connections = self.connections.clone();
        move || connections.all()
    }

    /// Disconnects every peer that is no longer allowed now, instead of at its next frame or at the next push to it.
    pub fn disconnect_disallowed(&self) {
        for peer in self.peers().iter().filter(|peer| !peer.is_allowed()) {
            peer.disconnect_for(CloseReason::NotAllowed);
        }
    }

    /// Accepts no more connections, lets the calls in flight finish, and waits for at most `grace` until every peer has
    /// disconnected. Then it disconnects the remaining peers and returns their number.
    ///
    /// Not cancel-safe: dropping the future drops the server, which disconnects every peer at once.
    pub async fn shutdown(self, grace: Duration) -> usize {
        self.leaving.cancel();
        self.tasks.close();
        if clock::within(grace, self.tasks.wait()).await.is_ok() {
            return 0;
        }
        let left = self.peers();
        for peer in &left {
            peer.disconnect_for(CloseReason::ShuttingDown);
        }
        // A closing handshake takes one second at most.
        drop(clock::within(Duration::from_secs(2), self.connections.empty()).await);
        left.len()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("key", &self.key)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
