//! The acceptor as a network service.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_net::{Allow, Fault, Handler, Key, NotPushed, Peer, PeerId, Server, ServerOptions};
use tokio::task::JoinHandle;

use super::allowed::List;
use super::protocol::ROLE;
use super::{
    Allowed, BadList, Limits, Lookout, Reply, Request, Settings, Stopped, Store, StoreError, Watcher, Writer,
};
use crate::notary::Notary;
use crate::{Asker, NodeId, PublicKey, node_id};

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
    limits: Limits,
    thread: thread::JoinHandle<()>,
    _following: Option<Following>,
}

/// The task that follows the list of keys. Dropping it ends the task.
#[derive(Debug)]
struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
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
        "refusing to listen on {0}, which others can reach: say who may ask, by --allow FILE or `allow` under \
         [acceptor], with a key on each line; or `anyone`, if whoever knows a council's id may take part in it"
    )]
    NotLoopback(SocketAddr),
    /// The acceptor cannot use the list of keys.
    #[error(transparent)]
    Allowed(#[from] BadList),
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
    #[error("the system starts no thread for the acceptor: {0}")]
    Thread(std::io::Error),
}

impl AcceptorService {
    /// Starts the acceptor of this directory, with its key and its store. Creates either if it is missing.
    pub async fn start(directory: &Path, settings: &Settings) -> Result<Self, StartError> {
        holdoff_disk::folder::make(directory).map_err(|source| {
            let directory = directory.display().to_string();
            StartError::Directory { directory, source }
        })?;
        let key = Key::load_or_create(directory.join(KEY))?;
        // Opening repairs the store after a crash, which takes a while if the store is large.
        let path = directory.join(STORE);
        let opened = tokio::task::spawn_blocking(move || Store::open(&path)).await;
        let store = opened.map_err(|error| StartError::Thread(std::io::Error::other(error)))??;
        Self::start_with(&key, store, settings).await
    }

    /// Starts an acceptor with this key on this store.
    pub async fn start_with(key: &Key, store: Store, settings: &Settings) -> Result<Self, StartError> {
        let list = match &settings.allow {
            Some(Allowed::File(path)) => Some(List::open(path)?),
            Some(Allowed::Anyone) => None,
            None if settings.listen.ip().is_loopback() => None,
            None => return Err(StartError::NotLoopback(settings.listen)),
        };
        let (writer, thread) = Writer::start(store, settings.limits).map_err(StartError::Thread)?;
        let options = ServerOptions {
            allow: list.as_ref().map_or_else(Allow::anyone, List::allow),
            roles: vec![ROLE.to_owned()],
            max_connections: settings.max_connections,
            max_connections_with_key: CONNECTIONS_WITH_KEY.min(settings.max_connections),
            ..ServerOptions::default()
        };
        let handler = Questions { writer: writer.clone(), notary: Notary::default() };
        let server = Server::start(key, &settings.listen.to_string(), handler, options).await?;
        let following = list.map(|list| Following(tokio::spawn(list.follow())));
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
    pub fn life(&self) -> u64 {
        self.writer.life()
    }

    /// Returns the acceptor's node id in configurations, which is derived from its key and its incarnation.
    pub fn node(&self) -> NodeId {
        node_id(&self.key(), self.life())
    }

    /// Returns a view of the acceptor for operators. Holding it does not keep the acceptor running.
    pub fn lookout(&self) -> Lookout {
        let (key, address, life) = (self.key(), self.address(), self.life());
        Lookout::new(key, address, life, self.limits, self.writer.look(), self.server.crowd())
    }

    /// Waits until the acceptor has stopped answering, and returns the reason.
    pub async fn failed(&self) -> Stopped {
        self.writer.ended().await
    }

    /// Stops the acceptor: it accepts no new connections, answers the requests in progress within `grace`, and closes
    /// the store. Returns the number of peers that it had to disconnect.
    pub async fn stop(self, grace: Duration) -> usize {
        let cut = self.server.shutdown(grace).await;
        drop(self.writer);
        let ended = tokio::task::spawn_blocking(move || drop(self.thread.join()));
        if tokio::time::timeout(LAST_COMMIT, ended).await.is_err() {
            tracing::warn!("the acceptor's disk takes long; it is left behind");
        }
        cut
    }
}

struct Questions {
    writer: Writer<Peer>,
    notary: Notary,
}

impl Questions {
    async fn answer(&self, peer: &Peer, message: &[u8]) -> Result<Reply, Fault> {
        let request = holdoff_net::decode(message).map_err(|error| {
            self.writer.refused("garbage");
            Fault::permanent(error.to_string())
        })?;
        let tells = match request {
            Request::Who => Vec::new(),
            Request::Ask { life, council, ask } => {
                let asker = Asker { key: peer.key(), node: node_id(&peer.key(), life) };
                let asked = self.writer.ask(council, asker, ask, Some(peer.clone()), &self.notary).await;
                // The cause of a disk failure concerns only the operator, so the client does not get it.
                asked.map_err(|_| Fault::transient("this acceptor has stopped: ask another one"))?
            }
        };
        Ok(Reply { life: self.writer.life(), tells })
    }
}

#[async_trait]
impl Handler for Questions {
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, Fault> {
        let reply = self.answer(peer, &request).await?;
        holdoff_net::encode(&reply).map_err(|error| Fault::permanent(error.to_string()))
    }

    /// Processes a message that expects no reply. Errors are not reported to the sender.
    async fn told(&self, peer: &Peer, message: Bytes) {
        drop(self.answer(peer, &message).await);
    }

    fn joined(&self, peer: &Peer) {
        self.writer.joined(peer.id());
    }

    fn left(&self, peer: &Peer) {
        self.writer.left(peer.id());
    }
}

impl Watcher for Peer {
    type Id = PeerId;

    fn id(&self) -> PeerId {
        Peer::id(self)
    }

    fn push(&self, message: &[u8]) -> bool {
        !matches!(Peer::push(self, message), Err(NotPushed::Gone))
    }
}
