//! A server: where others link to.

mod answer;
mod door;
mod guests;
mod peer;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::{Error, Fault, Key, PublicKey, Refusal, ServerOptions, clock, tls};
use door::Door;
use guests::Guests;

pub use peer::{NotPushed, Peer, PeerId};

/// What a server does with what peers send.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers a request.
    ///
    /// Requests of one peer are handled at once, as many as the limits allow, in any order. Once begun, this runs to
    /// its end, also when the peer gives up or goes, or the server does. A panic is answered with a fault.
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, Fault>;

    /// Hears a message that wants no reply. One peer's messages come one after the other, in the order they were
    /// sent, and nothing else is read from that peer meanwhile. It runs to its end, as a call does.
    async fn told(&self, peer: &Peer, message: Bytes) {
        drop((peer, message));
    }

    /// A peer is let in. Must not block.
    fn joined(&self, peer: &Peer) {
        let _ = peer;
    }

    /// A peer is gone; nothing more comes from it, though a call of it may still be answered in vain. Must not block.
    fn left(&self, peer: &Peer) {
        let _ = peer;
    }
}

/// Several servers may share one.
#[async_trait]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, Fault> {
        (**self).call(peer, request).await
    }

    async fn told(&self, peer: &Peer, message: Bytes) {
        (**self).told(peer, message).await;
    }

    fn joined(&self, peer: &Peer) {
        (**self).joined(peer);
    }

    fn left(&self, peer: &Peer) {
        (**self).left(peer);
    }
}

/// A running server. Dropped, it cuts everybody off.
pub struct Server {
    key: PublicKey,
    address: SocketAddr,
    guests: Arc<Guests>,
    tasks: TaskTracker,
    leaving: CancellationToken,
    _closed: DropGuard,
}

impl Server {
    /// Listens at this address, such as `0.0.0.0:7878`; port 0 is any that is free.
    pub async fn start(
        key: &Key,
        address: &str,
        handler: impl Handler,
        options: ServerOptions,
    ) -> Result<Self, Error> {
        options.check()?;
        let tls = tls::server(key).map_err(|why| Error::Options(why.to_string()))?;
        let failed = |source| Error::Listen { address: address.to_owned(), source };
        let listener = options.transport.listen(address).await.map_err(failed)?;
        let address = listener.address().map_err(failed)?;
        let guests = Arc::new(Guests::new(&options));
        let (tasks, leaving, closed) =
            (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let door = Door {
            tls,
            options,
            handler: Arc::new(handler),
            guests: guests.clone(),
            tasks: tasks.clone(),
            leaving: leaving.clone(),
            closed: closed.clone(),
        };
        tokio::spawn(Arc::new(door).keep(listener));
        Ok(Self { key: key.public(), address, guests, tasks, leaving, _closed: closed.drop_guard() })
    }

    /// Who it is.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everybody who is connected now, in the order they came.
    pub fn peers(&self) -> Vec<Peer> {
        self.guests.all()
    }

    /// Tells who is connected, as [`peers`](Self::peers) does. Whoever keeps this does not keep it running.
    pub fn crowd(&self) -> impl Fn() -> Vec<Peer> + Clone + Send + Sync + 'static + use<> {
        let guests = self.guests.clone();
        move || guests.all()
    }

    /// Cuts off everybody who is no longer allowed, rather than at the next thing they send or are sent.
    pub fn review(&self) {
        for peer in self.peers().iter().filter(|peer| !peer.is_allowed()) {
            peer.cut_for(Refusal::NotAllowed);
        }
    }

    /// Lets nobody in any more, answers what is under way, and waits until everybody has left, but not for longer than
    /// `grace`; then cuts off who is left, and says how many these were.
    pub async fn shutdown(self, grace: Duration) -> usize {
        self.leaving.cancel();
        self.tasks.close();
        if clock::within(grace, self.tasks.wait()).await.is_ok() {
            return 0;
        }
        let left = self.peers();
        for peer in &left {
            peer.cut_for(Refusal::Leaving);
        }
        // A goodbye takes a second at most.
        drop(clock::within(Duration::from_secs(2), self.guests.empty()).await);
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
