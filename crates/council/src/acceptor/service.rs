//! The acceptor on the network.

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

/// The name of the store in an acceptor's directory.
const STORE: &str = "acceptor.redb";
/// The name of the key there.
const KEY: &str = "acceptor.key";
/// Connections of one key: a device, restarted now and then.
const CONNECTIONS_WITH_KEY: usize = 16;
/// How long the writer may take to end once nobody asks it any more.
const LAST_COMMIT: Duration = Duration::from_secs(10);

/// A running acceptor. Dropped, it cuts everybody off; what it has answered is on disk.
#[derive(Debug)]
pub struct AcceptorService {
    server: Server,
    writer: Writer<Peer>,
    limits: Limits,
    thread: thread::JoinHandle<()>,
    _following: Option<Following>,
}

/// Goes by the list of keys until it is dropped.
#[derive(Debug)]
struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
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
    /// Others can reach it, and it was not said who of them may ask.
    #[error(
        "refusing to listen on {0}, which others can reach: say who may ask, by --allow FILE or `allow` under \
         [acceptor], with a key on each line; or `anyone`, if whoever knows a council's id may take part in it"
    )]
    NotLoopback(SocketAddr),
    /// The list of keys cannot be used.
    #[error(transparent)]
    Allowed(#[from] BadList),
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
    pub async fn start(directory: &Path, settings: &Settings) -> Result<Self, StartError> {
        holdoff_disk::folder::make(directory).map_err(|source| {
            let directory = directory.display().to_string();
            StartError::Directory { directory, source }
        })?;
        let key = Key::load_or_create(directory.join(KEY))?;
        // Opening mends what a crash has left, which takes a while if there is much.
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

    /// What people can see of it. Whoever keeps this does not keep it running.
    pub fn lookout(&self) -> Lookout {
        let (key, address, life) = (self.key(), self.address(), self.life());
        Lookout::new(key, address, life, self.limits, self.writer.look(), self.server.crowd())
    }

    /// Waits until it has stopped answering, and says why.
    pub async fn failed(&self) -> Stopped {
        self.writer.ended().await
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
