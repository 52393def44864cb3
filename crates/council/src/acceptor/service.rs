//! The acceptor on the network.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_net::{Allow, Fault, Handler, Key, NotPushed, Peer, PeerId, Server, ServerOptions};

use super::protocol::ROLE;
use super::{Limits, Reply, Request, Store, StoreError, Watcher, Writer};
use crate::{Asker, Ed25519, NodeId, PublicKey, metrics, node_id};

/// The name of the store in an acceptor's directory.
const STORE: &str = "acceptor.redb";
/// The name of the key there.
const KEY: &str = "acceptor.key";
/// How long the writer may take to end once nobody asks it any more.
const LAST_COMMIT: Duration = Duration::from_secs(10);

/// How an acceptor runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens, such as `127.0.0.1:4747`; port 0 is any that is free.
    pub listen: String,
    /// Who may ask. Whoever may, takes part in the councils whose ids it knows.
    pub allow: Allow,
    /// Connections in all.
    pub max_connections: usize,
    /// Connections of one key.
    pub max_connections_with_key: usize,
    /// What all of it may cost.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:4747".to_owned(),
            allow: Allow::anyone(),
            max_connections: 1024,
            max_connections_with_key: 16,
            limits: Limits::default(),
        }
    }
}

/// A running acceptor. Dropped, it cuts everybody off; what it has answered is on disk.
#[derive(Debug)]
pub struct AcceptorService {
    server: Server,
    writer: Writer<Peer>,
    thread: thread::JoinHandle<()>,
}

/// Why an acceptor cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its directory cannot be used.
    #[error("cannot use {directory} for the acceptor: {source}")]
    Directory {
        /// Which.
        directory: String,
        /// Why.
        source: std::io::Error,
    },
    /// Its key cannot be read or made.
    #[error(transparent)]
    Key(#[from] holdoff_net::KeyFileError),
    /// Its store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot listen.
    #[error(transparent)]
    Net(#[from] holdoff_net::Error),
    /// The system gives it no thread.
    #[error("the system starts no thread for the acceptor: {0}")]
    Thread(std::io::Error),
}

impl AcceptorService {
    /// Starts the acceptor of this directory, with the key and the store there; both are made if need be.
    pub async fn start(directory: &Path, options: Options) -> Result<Self, StartError> {
        let made = || {
            let mut builder = std::fs::DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.recursive(true).create(directory)
        };
        made()
            .map_err(|source| StartError::Directory { directory: directory.display().to_string(), source })?;
        let key = Key::load_or_create(directory.join(KEY))?;
        // Opening mends what a crash has left, which takes a while if there is much.
        let path = directory.join(STORE);
        let opened = tokio::task::spawn_blocking(move || Store::open(&path)).await;
        let store = opened.map_err(|error| StartError::Thread(std::io::Error::other(error)))??;
        Self::start_with(&key, store, options).await
    }

    /// Starts an acceptor with this key on this store.
    pub async fn start_with(key: &Key, store: Store, options: Options) -> Result<Self, StartError> {
        let (writer, thread) = Writer::start(store, options.limits).map_err(StartError::Thread)?;
        let server_options = ServerOptions {
            allow: options.allow,
            roles: vec![ROLE.to_owned()],
            max_connections: options.max_connections,
            max_connections_with_key: options.max_connections_with_key,
            ..ServerOptions::default()
        };
        let handler = Questions { writer: writer.clone() };
        let server = Server::start(key, &options.listen, handler, server_options).await?;
        Ok(Self { server, writer, thread })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Its key.
    pub fn key(&self) -> PublicKey {
        self.server.key()
    }

    /// The life of its storage.
    pub fn life(&self) -> u64 {
        self.writer.life()
    }

    /// Who it is in configurations: its key and its life.
    pub fn node(&self) -> NodeId {
        node_id(&self.key(), self.life())
    }

    /// Tells why it has stopped answering, if it has: its disk has failed.
    pub fn health(&self) -> impl Fn() -> Option<String> + Clone + Send + Sync + 'static + use<> {
        self.writer.health()
    }

    /// Cuts off whoever is no longer on the list.
    pub fn review(&self) {
        self.server.review();
    }

    /// Takes in nothing new, answers what is under way, closes the store. Returns how many had to be cut off.
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
}

impl Questions {
    async fn answer(&self, peer: &Peer, message: &[u8]) -> Result<Reply, Fault> {
        let request = holdoff_net::decode(message).map_err(|error| {
            metrics::refused("garbage");
            Fault::permanent(error.to_string())
        })?;
        let tells = match request {
            Request::Who => Vec::new(),
            Request::Ask { life, council, ask } => {
                let asker = Asker { key: peer.key(), node: node_id(&peer.key(), life) };
                let asked = self.writer.ask(council, asker, ask, Some(peer.clone()), &Ed25519).await;
                // Why a disk has failed is its operator's business.
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

    /// What wants no reply gets none, whatever becomes of it.
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
