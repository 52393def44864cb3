//! Admission: accepts connections, performs the handshake, checks the allow list and the connection limits, and refuses
//! with a reason.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::peer::Handshake;
use super::session::Session;
use super::{ConnectionId, Handler, Peer};
use crate::connection::drain;
use crate::metrics::{self, ConnectionGauge, Side};
use crate::role::RoleOffer;
use crate::transport::{Listener, Stream};
use crate::wire::{AnnouncedLimits, Decoder, Frame, MAX_HANDSHAKE_FRAME, Malformed, NoFrame, VERSION};
use crate::{CloseReason, PublicKey, ServerOptions, clock, tls};

/// The pause after a failed accept. Mostly too many files are open, so an immediate retry would fail again.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The time for which the server reads from a refused peer, so that the peer receives the reason.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct Admission {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) options: ServerOptions,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) connections: Arc<ConnectionTable>,
    pub(super) tasks: TaskTracker,
    /// Cancelled when the server accepts no more connections.
    pub(super) leaving: CancellationToken,
    /// Cancelled when the server is dropped.
    pub(super) closed: CancellationToken,
}

/// An accepted connection.
pub(super) struct Admitted {
    pub(super) stream: TlsStream<Box<dyn Stream>>,
    pub(super) decoder: Decoder,
    pub(super) handshake: Handshake,
    pub(super) permit: ConnectionPermit,
}

/// A refused connection.
struct Rejected {
    /// The label value in the metrics.
    reason: &'static str,
    /// The stream and the reason to send over it, if the peer can still receive one.
    notice: Option<(TlsStream<Box<dyn Stream>>, CloseReason)>,
}

impl Rejected {
    fn silently(reason: &'static str) -> Self {
        Self { reason, notice: None }
    }

    fn with_reason(stream: TlsStream<Box<dyn Stream>>, reason: CloseReason) -> Self {
        Self { reason: reason.name(), notice: Some((stream, reason)) }
    }
}

impl Admission {
    /// Accepts connections until the server leaves.
    pub(super) async fn accept_all(self: Arc<Self>, mut listener: Box<dyn Listener>) {
        let handshakes =
            Arc::new(Handshakes { most: self.options.max_handshakes, running: Mutex::default() });
        loop {
            let next = tokio::select! {
                biased;
                () = self.leaving.cancelled() => return,
                () = self.closed.cancelled() => return,
                next = listener.accept() => next,
            };
            match next {
                Ok((stream, address)) => {
                    let place = handshakes.begin(address.ip());
                    let session = self.clone().admit_one(stream, address, place);
                    self.tasks.spawn(self.closed.clone().run_until_cancelled_owned(session));
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    clock::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    async fn admit_one(self: Arc<Self>, stream: Box<dyn Stream>, address: SocketAddr, place: HandshakePlace) {
        let limit = self.options.handshake_timeout;
        let admitted = tokio::select! {
            biased;
            // A connection that is not accepted yet does not delay the shutdown.
            () = self.leaving.cancelled() => Err(Rejected::silently(CloseReason::ShuttingDown.name())),
            () = place.evicted.cancelled() => Err(Rejected::silently("evicted")),
            admitted = clock::within(limit, self.perform_handshake(stream, address)) => {
                admitted.unwrap_or(Err(Rejected::silently("timeout")))
            }
        };
        match admitted {
            Ok(admitted) => {
                drop(place);
                Session::new(&self, admitted).run().await;
            }
            Err(Rejected { reason, notice }) => {
                tracing::debug!(%address, reason, "refused a connection");
                metrics::refused(reason);
                if let Some((stream, reason)) = notice {
                    send_reason(stream, reason).await;
                }
                drop(place);
            }
        }
    }

    async fn perform_handshake(
        &self,
        stream: Box<dyn Stream>,
        address: SocketAddr,
    ) -> Result<Admitted, Rejected> {
        let accepting = TlsAcceptor::from(self.tls.clone()).accept(stream);
        let mut stream = accepting.await.map_err(|_| Rejected::silently("tls"))?;
        let key = tls::proved(stream.get_ref().1.peer_certificates()).ok_or(Rejected::silently("tls"))?;
        let permit = match self.admit(key) {
            Ok(permit) => permit,
            Err(reason) => return Err(Rejected::with_reason(stream, reason)),
        };
        let mut decoder = Decoder::new(MAX_HANDSHAKE_FRAME);
        let hello = decoder.next(&mut stream).await;
        let body = match hello {
            Ok(body) => body,
            Err(NoFrame::Malformed(malformed)) => {
                metrics::malformed(malformed);
                return Err(Rejected::with_reason(stream, CloseReason::Malformed));
            }
            Err(NoFrame::End | NoFrame::Failed(_)) => return Err(Rejected::silently("disconnected")),
        };
        match self.read_hello(&body) {
            Ok((role, role_version, terms)) => {
                let handshake = Handshake { key, role, role_version, address, terms };
                decoder.set_limit(self.options.limits.max_frame);
                let terms = self.options.limits.terms();
                let welcome = Frame::Welcome { version: VERSION, role_version, terms }.to_bytes();
                let written = async {
                    stream.write_all(&welcome).await?;
                    stream.flush().await
                };
                written.await.map_err(|_| Rejected::silently("disconnected"))?;
                Ok(Admitted { stream, decoder, handshake, permit })
            }
            Err(reason) => Err(Rejected::with_reason(stream, reason)),
        }
    }

    /// Checks the key of a peer before any of its frames is read.
    fn admit(&self, key: PublicKey) -> Result<ConnectionPermit, CloseReason> {
        if !self.options.allow.allows(&key) {
            return Err(CloseReason::NotAllowed);
        }
        self.connections.permit(key)
    }

    /// Returns the version of a role that both sides use.
    fn role_version(&self, offered: RoleOffer<'_>) -> Result<u16, CloseReason> {
        if !offered.is_valid() {
            return Err(CloseReason::Role);
        }
        let roles = &self.options.roles;
        let Some(served) = roles.iter().find(|served| served.name() == offered.name) else {
            return if roles.is_empty() { Ok(offered.newest) } else { Err(CloseReason::Role) };
        };
        let RoleOffer { oldest, newest, .. } = served.offer();
        offered.common(served).ok_or(CloseReason::RoleVersion { oldest, newest })
    }

    fn read_hello(&self, body: &[u8]) -> Result<(String, u16, AnnouncedLimits), CloseReason> {
        match Frame::read(body) {
            Ok(Frame::Hello { oldest, newest, .. }) if !(oldest..=newest).contains(&VERSION) => {
                Err(CloseReason::Version { oldest: VERSION, newest: VERSION })
            }
            Ok(Frame::Hello { role, terms, .. }) => {
                Ok((role.name.to_owned(), self.role_version(role)?, terms))
            }
            Ok(_) => {
                metrics::malformed(Malformed::Unexpected);
                Err(CloseReason::Malformed)
            }
            Err(malformed) => {
                metrics::malformed(malformed);
                Err(CloseReason::Malformed)
            }
        }
    }
}

/// The handshakes in progress. If all places are taken, the server ends the oldest handshake of the network that has most
/// of them: a stranger that opens many silent connections ends its own.
#[derive(Debug)]
struct Handshakes {
    most: usize,
    running: Mutex<RunningHandshakes>,
}

#[derive(Debug, Default)]
struct RunningHandshakes {
    last: u64,
    /// The network of each handshake, and the token that ends it. By number: the oldest first.
    places: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

/// The place of one handshake; released when dropped.
struct HandshakePlace {
    handshakes: Arc<Handshakes>,
    number: u64,
    /// Cancelled when the handshake must give way to another.
    evicted: CancellationToken,
}

impl Handshakes {
    fn begin(self: &Arc<Self>, address: IpAddr) -> HandshakePlace {
        let (network, evicted) = (network(address), CancellationToken::new());
        let mut running = self.running.lock();
        running.last += 1;
        let number = running.last;
        running.places.insert(number, (network, evicted.clone()));
        if running.places.len() > self.most {
            running.evict();
        }
        HandshakePlace { handshakes: self.clone(), number, evicted }
    }
}

impl RunningHandshakes {
    fn evict(&mut self) {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for (network, _) in self.places.values() {
            *counts.entry(*network).or_default() += 1;
        }
        let most = counts.values().max();
        let oldest = self.places.iter().find(|(_, (network, _))| counts.get(network) == most);
        let oldest = oldest.map(|(number, _)| *number);
        if let Some((_, evicted)) = oldest.and_then(|oldest| self.places.remove(&oldest)) {
            evicted.cancel();
        }
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.handshakes.running.lock().places.remove(&self.number);
    }
}

/// Returns the unit of addresses that one client has: an IPv4 address, or the /64 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

async fn send_reason(mut stream: TlsStream<Box<dyn Stream>>, reason: CloseReason) {
    let close = Frame::Close { reason }.to_bytes();
    let writing = async {
        stream.write_all(&close).await?;
        stream.shutdown().await?;
        drain(&mut stream).await;
        std::io::Result::Ok(())
    };
    // The outcome does not matter: the peer may be gone.
    drop(clock::within(REFUSAL_TIMEOUT, writing).await);
}

#[derive(Debug)]
pub(super) struct ConnectionTable {
    most: usize,
    most_with_key: usize,
    state: Mutex<TableState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct TableState {
    open: usize,
    by_key: HashMap<PublicKey, usize>,
    peers: BTreeMap<ConnectionId, Peer>,
    next: u64,
}

/// The permit for one connection; released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    connections: Arc<ConnectionTable>,
    key: PublicKey,
    id: ConnectionId,
    _open: ConnectionGauge,
}

impl ConnectionTable {
    pub(super) fn new(options: &ServerOptions) -> Self {
        let (most, most_with_key) = (options.max_connections, options.max_connections_with_key);
        Self { most, most_with_key, state: Mutex::default(), changed: Notify::new() }
    }

    /// Takes a permit for this key, if the limits allow it.
    pub(super) fn permit(self: &Arc<Self>, key: PublicKey) -> Result<ConnectionPermit, CloseReason> {
        let mut state = self.state.lock();
        if state.open >= self.most {
            return Err(CloseReason::TooManyConnections);
        }
        let most_with_key = self.most_with_key;
        let with_key = state.by_key.entry(key).or_default();
        if *with_key >= most_with_key {
            return Err(CloseReason::TooManyWithKey);
        }
        *with_key += 1;
        state.open += 1;
        state.next += 1;
        let id = ConnectionId(state.next);
        drop(state);
        Ok(ConnectionPermit { connections: self.clone(), key, id, _open: metrics::opened(Side::Server) })
    }

    /// Returns the connected peers, in the order in which they connected.
    pub(super) fn all(&self) -> Vec<Peer> {
        self.state.lock().peers.values().cloned().collect()
    }

    /// Waits until no connection is left.
    pub(super) async fn empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().open == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl ConnectionPermit {
    pub(super) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Registers the peer as connected.
    pub(super) fn register(&self, peer: &Peer) {
        self.connections.state.lock().peers.insert(self.id, peer.clone());
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.open = state.open.saturating_sub(1);
        state.peers.remove(&self.id);
        if let Some(with_key) = state.by_key.get_mut(&self.key) {
            *with_key = with_key.saturating_sub(1);
            if *with_key == 0 {
                state.by_key.remove(&self.key);
            }
        }
        drop(state);
        self.connections.changed.notify_waiters();
    }
}
