//! The acceptor as a network service.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_net::{
    AllowList, ConnectionId, Handler, HandlerError, Peer, PushError, SecretKey, Server, ServerOptions,
    SignatureCache,
};
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use super::allowed::KeyList;
use super::{
    AcceptorInspector, AcceptorLimits, AcceptorStopped, Allowed, BadKeyList, LinkMessage, LinkReply,
    LinkRequest, ROLE, Settings, Store, StoreError, Watcher, Writer,
};
use crate::{AcceptorReply, NodeId, PublicKey, RequestRefusal, Requester};

/// The file name of the store in an acceptor's directory.
const STORE: &str = "acceptor.redb";
/// The file name of the key in that directory.
const KEY: &str = "acceptor.key";
/// The limit of connections for one key. A key belongs to one device, which restarts now and then.
const CONNECTIONS_WITH_KEY: usize = 16;
/// The time that the writer has to finish after its last request.
const LAST_COMMIT: Duration = Duration::from_secs(10);

/// A running acceptor. Dropping it closes all connections; every answer that it has sent is backed by the disk.
#[derive(Debug)]
pub struct AcceptorService {
    server: Server,
    writer: Writer<Peer>,
    limits: AcceptorLimits,
    thread: thread::JoinHandle<()>,
    /// The task that follows the list of keys.
    _following: Option<AbortOnDropHandle<()>>,
}

/// The error of an acceptor that cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The acceptor cannot use its directory.
    #[error("cannot use {directory} for the acceptor: {source}")]
    Directory {
        /// The directory.
        directory: String,
        /// The cause.
        source: std::io::Error,
    },
    /// Other machines can reach the listen address, and no setting says which clients may send requests.
    #[error(
        "cannot listen on {0}, which other machines can reach, without a list of clients: set --allow FILE or `allow` \
         under [acceptor] to a file with one key per line, or to `anyone` to permit every client"
    )]
    NotLoopback(SocketAddr),
    /// The acceptor cannot use the list of keys.
    #[error(transparent)]
    Allowed(#[from] BadKeyList),
    /// The acceptor can neither read nor create its key.
    #[error(transparent)]
    Key(#[from] holdoff_net::KeyFileError),
    /// The acceptor cannot open its store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The acceptor cannot listen.
    #[error(transparent)]
    Net(#[from] holdoff_net::Error),
    /// The operating system refuses a thread.
    #[error("cannot start a thread for the acceptor: {0}")]
    Thread(#[source] std::io::Error),
}

impl AcceptorService {
    /// Starts the acceptor of this directory, with its key and its store. Creates either if it is missing.
    pub async fn start(directory: &Path, settings: &Settings) -> Result<Self, StartError> {
        holdoff_disk::directory::create(directory).map_err(|source| {
            let directory = directory.display().to_string();
            StartError::Directory { directory, source }
        })?;
        let key = SecretKey::load_or_create(directory.join(KEY))?;
        // Opening repairs the store after a crash, which takes a while if the store is large.
        let path = directory.join(STORE);
        let opened = tokio::task::spawn_blocking(move || Store::open(&path)).await;
        let store = opened.map_err(|error| StartError::Thread(std::io::Error::other(error)))??;
        Self::start_with(&key, store, settings).await
    }

    /// Starts an acceptor with this key on this store.
    pub async fn start_with(key: &SecretKey, store: Store, settings: &Settings) -> Result<Self, StartError> {
        let list = match &settings.allow {
            Some(Allowed::File(path)) => Some(KeyList::open(path)?),
            Some(Allowed::Anyone) => None,
            None if settings.listen.ip().is_loopback() => None,
            None => return Err(StartError::NotLoopback(settings.listen)),
        };
        let (writer, thread) = Writer::start(store, settings.limits).map_err(StartError::Thread)?;
        let options = ServerOptions {
            allow: list.as_ref().map_or_else(AllowList::any, KeyList::allow),
            roles: vec![ROLE],
            max_connections: settings.max_connections,
            max_connections_with_key: CONNECTIONS_WITH_KEY.min(settings.max_connections),
            ..ServerOptions::default()
        };
        let handler = RequestHandler { writer: writer.clone(), signatures: SignatureCache::default() };
        let server = Server::start(key, &settings.listen.to_string(), handler, options).await?;
        let following = list.map(|list| AbortOnDropHandle::new(tokio::spawn(list.follow())));
        Ok(Self { server, writer, limits: settings.limits, thread, _following: following })
    }

    /// Returns the address on which the acceptor listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the acceptor's key.
    pub fn key(&self) -> PublicKey {
        self.server.key()
    }

    /// Returns the incarnation of the acceptor's store.
    pub fn incarnation(&self) -> u64 {
        self.writer.incarnation()
    }

    /// Returns the acceptor's node id in configurations, which is derived from its key and its incarnation.
    pub fn node(&self) -> NodeId {
        NodeId::derive(self.key().as_bytes(), self.incarnation())
    }

    /// Returns a view of the acceptor for operators. Holding it does not keep the acceptor running.
    pub fn inspector(&self) -> AcceptorInspector {
        let (key, address, incarnation) = (self.key(), self.address(), self.incarnation());
        AcceptorInspector::new(
            key,
            address,
            incarnation,
            self.limits,
            self.writer.inspector(),
            self.server.peer_lister(),
        )
    }

    /// Waits until the acceptor has stopped answering, and returns the reason.
    pub async fn failed(&self) -> AcceptorStopped {
        self.writer.ended().await
    }

    /// Stops the acceptor: it accepts no new connections, answers the requests in progress within `grace`, and closes
    /// the store. Returns the number of peers that it had to disconnect.
    pub async fn stop(self, grace: Duration) -> usize {
        let cut = self.server.shutdown(grace).await;
        drop(self.writer);
        let ended = tokio::task::spawn_blocking(move || drop(self.thread.join()));
        if tokio::time::timeout(LAST_COMMIT, ended).await.is_err() {
            tracing::warn!(timeout = ?LAST_COMMIT, "stopped waiting for the acceptor's last commit");
        }
        cut
    }
}

struct RequestHandler {
    writer: Writer<Peer>,
    signatures: SignatureCache,
}

impl RequestHandler {
    fn decode<T: DeserializeOwned>(&self, message: &[u8]) -> Result<T, HandlerError> {
        holdoff_net::decode(message).map_err(|error| {
            self.writer.refused("malformed");
            HandlerError::permanent(error.to_string())
        })
    }

    async fn answer(&self, peer: &Peer, request: LinkRequest) -> Result<LinkReply, HandlerError> {
        let replies = match request {
            LinkRequest::Identify => Vec::new(),
            LinkRequest::Council { incarnation, council, request } => {
                let (requester, from) = (requester(peer, incarnation), Some(peer.clone()));
                let asked = self.writer.request(council, requester, request, from, &self.signatures).await;
                // The cause of a disk failure concerns only the operator, so the client does not get it.
                asked.map_err(|_| HandlerError::transient(RequestRefusal::Stopped.to_string()))?
            }
        };
        Ok(LinkReply { incarnation: self.writer.incarnation(), replies })
    }

    /// Queues the requests of a frame. The writer pushes the replies.
    async fn post(&self, peer: &Peer, messages: Vec<LinkMessage>) {
        for LinkMessage { incarnation, council, tag, request } in messages {
            let (requester, from) = (requester(peer, incarnation), (peer.clone(), tag));
            let posted = self.writer.post(council, requester, request, from, &self.signatures).await;
            if posted.is_err() {
                let why = AcceptorReply::Refused { slot: None, why: RequestRefusal::Stopped };
                return self.writer.push(peer, council, tag, why);
            }
        }
    }
}

/// Returns the device with this key and this incarnation of its store.
fn requester(peer: &Peer, incarnation: u64) -> Requester {
    Requester { key: peer.key(), node: NodeId::derive(peer.key().as_bytes(), incarnation) }
}

#[async_trait]
impl Handler for RequestHandler {
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        let reply = self.answer(peer, self.decode(&request)?).await?;
        holdoff_net::encode(&reply).map_err(|error| HandlerError::permanent(error.to_string()))
    }

    /// Passes requests to the writer. Drops and counts a message that cannot be decoded.
    async fn on_message(&self, peer: &Peer, message: Bytes) {
        if let Ok(messages) = self.decode(&message) {
            self.post(peer, messages).await;
        }
    }

    fn on_connect(&self, peer: &Peer) {
        self.writer.joined(peer.id());
    }

    fn on_disconnect(&self, peer: &Peer) {
        self.writer.left(peer.id());
    }
}

impl Watcher for Peer {
    type Id = ConnectionId;

    fn id(&self) -> ConnectionId {
        Peer::id(self)
    }

    fn key(&self) -> PublicKey {
        Peer::key(self)
    }

    fn push(&self, message: &[u8]) -> bool {
        !matches!(Peer::push(self, message), Err(PushError::Disconnected))
    }
}
