//! The host: all ledgers of one process, with one key, one server and one link to each other node.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdoff_disk::DiskError;
use holdoff_net::{NoRandomness, PeerAddress, PublicKey, SecretKey, Server, ServerOptions, bounded_queue};
use holdoff_paxos::NodeId;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::address_book::AddressBook;
use super::identity::LedgerId;
use super::joining::{self, DescribedLedger};
use super::node::{Node, NodeShared};
use super::peers::{self, Peers};
use super::service::{HostedLedger, PeerService, Registry};
use super::store::{LedgerInfo, Store};
use super::task::{Event, Task, TaskParts};
use super::wire::{MAX_MESSAGE_BYTES, ROLE};
use super::{Error, NodeMachine, Settings, clock};

const KEY: &str = "node.key";
const EXTENSION: &str = "redb";
/// The maximum number of events in each queue of a node's task. A caller waits while its queue is full; the envelope of a
/// peer is dropped.
const EVENTS: usize = 4096;
/// The maximum number of connections of one peer: the server may not yet have noticed that an old one is closed.
const CONNECTIONS_WITH_KEY: usize = 8;
/// The time that the last write may take when a ledger stops.
const LAST_COMMIT: Duration = Duration::from_secs(10);

/// Runs all ledgers of one process. Dropping the host stops them.
pub struct Host<M: NodeMachine> {
    server: Server,
    state: Arc<HostState<M>>,
    _stop_on_drop: StopOnDrop<M>,
}

/// Stops all tasks when the host is dropped.
struct StopOnDrop<M: NodeMachine>(Arc<HostState<M>>);

struct HostState<M: NodeMachine> {
    key: SecretKey,
    address: String,
    settings: Settings,
    peers: Arc<Peers>,
    registry: Arc<Registry<M>>,
    /// The running tasks, by namespace.
    running: Mutex<BTreeMap<String, RunningTask>>,
}

/// A task that is aborted when this is dropped.
#[derive(Debug)]
struct RunningTask(JoinHandle<()>);

/// Creates a ledger with this name in this directory. This node is its only voter until other nodes are added.
///
/// Starts no node: start a [`Host`] on the directory. Returns the node's key and the ledger's id.
pub fn create(data: &Path, namespace: &str) -> Result<(PublicKey, LedgerId), Error> {
    let (key, store) = open_store(data, namespace)?;
    if store.is_initialized()? {
        return Err(Error::AlreadyExists(namespace.to_owned()));
    }
    let info = new_ledger(&key, &store)?;
    Ok((key.public(), info.ledger))
}

/// Prepares this directory for a node that joins the ledger with this name through the given members.
///
/// Starts no node: have a member add the returned key, and start a [`Host`] on the directory. Until the node has joined,
/// another call replaces the members to ask.
pub fn join(data: &Path, namespace: &str, contacts: &[PeerAddress]) -> Result<PublicKey, Error> {
    let (key, store) = open_store(data, namespace)?;
    if store.ledger_info()?.is_some() {
        return Err(Error::AlreadyExists(namespace.to_owned()));
    }
    store.set_contacts(&contacts)?;
    Ok(key.public())
}

fn open_store(data: &Path, namespace: &str) -> Result<(SecretKey, Store), Error> {
    let path = path(data, namespace)?;
    create_directory(data)?;
    Ok((SecretKey::load_or_create(data.join(KEY))?, Store::open(&path)?))
}

/// Returns the error for a ledger that does not exist in this directory.
pub(super) fn unknown(data: &Path, namespace: &str) -> Error {
    Error::UnknownLedger { name: namespace.to_owned(), data: data.to_owned() }
}

/// Opens the store of a ledger that exists in this directory.
pub(super) fn open_existing(data: &Path, namespace: &str) -> Result<(SecretKey, Store), Error> {
    let path = path(data, namespace)?;
    if !path.exists() {
        return Err(unknown(data, namespace));
    }
    Ok((SecretKey::load_or_create(data.join(KEY))?, Store::open(&path)?))
}

fn new_ledger(key: &SecretKey, store: &Store) -> Result<LedgerInfo, Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(NoRandomness::from)?;
    let info = LedgerInfo {
        ledger: LedgerId(id),
        founder: NodeId::derive(key.public().as_bytes(), store.incarnation()),
        refounded: None,
    };
    store.set_ledger(&info, &[])?;
    Ok(info)
}

fn create_directory(data: &Path) -> Result<(), Error> {
    holdoff_disk::directory::create(data).map_err(|error| DiskError::at(data, error).into())
}

/// Returns the path of a ledger's store. The namespace is the name of the file.
fn path(data: &Path, namespace: &str) -> Result<PathBuf, Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if (1..=64).contains(&namespace.len()) && namespace.bytes().all(is_plain) {
        return Ok(data.join(format!("{namespace}.{EXTENSION}")));
    }
    Err(Error::BadNamespace(namespace.to_owned()))
}

/// Returns the names of the ledgers in a directory.
fn namespaces(data: &Path) -> Result<Vec<String>, Error> {
    let failed = |error: std::io::Error| DiskError::at(data, error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(data).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_store = path.extension().is_some_and(|extension| extension == EXTENSION);
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_store).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

impl<M: NodeMachine> Host<M> {
    /// Starts all ledgers in the directory. Not cancel-safe: dropping the future stops the ledgers again.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        create_directory(&settings.data)?;
        let key = SecretKey::load_or_create(settings.data.join(KEY))?;
        let registry = Arc::new(Registry::default());
        let options = ServerOptions {
            allow: Registry::allow_list(&registry),
            roles: vec![ROLE],
            max_connections_with_key: CONNECTIONS_WITH_KEY,
            limits: peers::limits(),
            ..ServerOptions::default()
        };
        let server =
            Server::start(&key, &settings.listen.to_string(), PeerService::new(registry.clone()), options)
                .await?;
        let address = settings.advertise.clone().unwrap_or_else(|| server.address().to_string());
        let peers = Arc::new(Peers::new(key.clone()));
        let state = HostState { key, address, settings, peers, registry, running: Mutex::default() };
        let state = Arc::new(state);
        let host = Self { server, state: state.clone(), _stop_on_drop: StopOnDrop(state) };
        if !host.state.settings.in_memory {
            for namespace in namespaces(&host.state.settings.data)? {
                let store = Store::open(&path(&host.state.settings.data, &namespace)?)?;
                HostState::start_ledger(&host.state, &namespace, store)?;
            }
        }
        Ok(host)
    }

    /// Creates a ledger with this name and starts it. This node is its only voter until other nodes are added.
    pub fn create(&self, namespace: &str) -> Result<Node<M>, Error> {
        let store = self.state.new_store(namespace)?;
        new_ledger(&self.state.key, &store)?;
        HostState::start_ledger(&self.state, namespace, store)?;
        self.ledger(namespace).ok_or_else(|| unknown(&self.state.settings.data, namespace))
    }

    /// Joins the ledger with this name through the given members, as soon as one of them has added this node.
    pub fn join(&self, namespace: &str, contacts: &[PeerAddress]) -> Result<(), Error> {
        let store = self.state.new_store(namespace)?;
        store.set_contacts(&contacts)?;
        HostState::start_ledger(&self.state, namespace, store)
    }

    /// Returns the public key of this node.
    pub fn key(&self) -> PublicKey {
        self.state.key.public()
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the key and the address under which peers reach this node.
    pub fn contact(&self) -> PeerAddress {
        PeerAddress { key: self.key(), address: self.state.address.clone() }
    }

    /// Returns the node of the ledger with this name, or `None` if the ledger is unknown or the node is still joining.
    pub fn ledger(&self, namespace: &str) -> Option<Node<M>> {
        self.state.registry.node(namespace)
    }

    /// Returns the names of all ledgers, and whether each is running; a ledger that is still joining is not.
    pub fn ledgers(&self) -> Vec<(String, bool)> {
        self.state.registry.names()
    }

    /// Returns a function that looks up ledgers by name. Holding it does not keep the ledgers running.
    pub fn ledgers_by_name(
        &self,
    ) -> impl Fn(&str) -> Option<Node<M>> + Clone + Send + Sync + 'static + use<M> {
        let registry = self.state.registry.clone();
        move |namespace| registry.node(namespace)
    }

    /// Returns a function that lists all ledgers like [`ledgers`](Self::ledgers).
    pub fn names(&self) -> impl Fn() -> Vec<(String, bool)> + Clone + Send + Sync + 'static + use<M> {
        let registry = self.state.registry.clone();
        move || registry.names()
    }

    /// Waits until the ledger with this name runs here. Cancel-safe.
    pub async fn joined(&self, namespace: &str, within: Duration) -> Result<Node<M>, Error> {
        let mut changes = self.state.registry.changes();
        let known = async {
            loop {
                if let Some(node) = self.ledger(namespace) {
                    return Some(node);
                }
                changes.changed().await.ok()?;
            }
        };
        let node = clock::within(within, known).await.ok().flatten();
        node.ok_or_else(|| unknown(&self.state.settings.data, namespace))
    }

    /// Stops all ledgers. When this returns, another process may open them. Not cancel-safe: after a cancellation the
    /// ledgers are stopped without waiting for their last write.
    pub async fn stop(self, grace: Duration) {
        let open = self.state.registry.clear();
        for node in &open {
            // An error means that the node has stopped already.
            drop(node.events.send(Event::Stop).await);
        }
        let running = std::mem::take(&mut *self.state.running());
        for (namespace, mut running) in running {
            if !open.iter().any(|node| node.namespace() == namespace) {
                continue;
            }
            if clock::within(LAST_COMMIT, &mut running.0).await.is_err() {
                tracing::warn!(namespace, "gave up waiting for the last write of a ledger");
            }
        }
        self.state.peers.clear();
        self.server.shutdown(grace).await;
    }
}

impl<M: NodeMachine> HostState<M> {
    fn running(&self) -> MutexGuard<'_, BTreeMap<String, RunningTask>> {
        self.running.lock()
    }

    /// Returns an empty store for a new ledger.
    fn new_store(&self, namespace: &str) -> Result<Store, Error> {
        let path = path(&self.settings.data, namespace)?;
        if self.registry.has(namespace) {
            return Err(Error::AlreadyExists(namespace.to_owned()));
        }
        if self.settings.in_memory {
            return Store::in_memory();
        }
        let store = Store::open(&path)?;
        if store.is_initialized()? { Err(Error::AlreadyExists(namespace.to_owned())) } else { Ok(store) }
    }

    /// Starts the ledger in a store. A node that does not know its ledger asks its contacts first, until one answers.
    fn start_ledger(state: &Arc<Self>, namespace: &str, store: Store) -> Result<(), Error> {
        let task = if store.ledger_info()?.is_some() {
            tokio::spawn(state.open(namespace, store)?)
        } else {
            let contacts: Vec<PeerAddress> = store.contacts()?.unwrap_or_default();
            let keys = contacts.iter().map(|contact| contact.key).collect();
            state.registry.put(namespace, HostedLedger::Joining(keys));
            let (name, state) = (namespace.to_owned(), state.clone());
            tokio::spawn(async move {
                let DescribedLedger { info, members } = joining::ask(&name, &contacts, &state.peers).await;
                let stored = store.set_ledger(&info, &members);
                match stored.and_then(|()| state.open(&name, store)) {
                    Ok(runs) => runs.await,
                    Err(error) => tracing::error!(namespace = name, %error, "failed to open a ledger"),
                }
            })
        };
        state.running().insert(namespace.to_owned(), RunningTask(task));
        Ok(())
    }

    /// Opens a known ledger. The returned future runs it.
    fn open(
        &self,
        namespace: &str,
        store: Store,
    ) -> Result<impl Future<Output = ()> + Send + 'static + use<M>, Error> {
        let info = store.ledger_info()?.ok_or_else(|| unknown(&self.settings.data, namespace))?;
        let (incarnation, address_book) = (store.incarnation(), Arc::new(AddressBook::default()));
        let parts = TaskParts {
            namespace: namespace.to_owned(),
            info,
            key: self.key.clone(),
            incarnation,
            address: self.address.clone(),
            settings: self.settings.clone(),
            recovered: store.recover::<super::NodeState<M>>(&info)?,
            listed_members: store.listed_members()?,
            address_book: address_book.clone(),
            peers: self.peers.clone(),
        };
        let (task, status) = Task::<M>::new(parts)?;
        let (events, waiting) = mpsc::channel(EVENTS);
        let (inbox, received) = bounded_queue(EVENTS, MAX_MESSAGE_BYTES);
        let (ended, why) = watch::channel(None);
        let shared = NodeShared {
            ledger: info.ledger,
            namespace: namespace.to_owned(),
            key: self.key.public(),
            address_book,
            inbox,
            peers: self.peers.clone(),
            max_transaction_bytes: self.settings.max_transaction_bytes,
            call_timeout: self.settings.call_timeout,
            ended: why,
        };
        let node = Node { events, status, shared: Arc::new(shared) };
        self.registry.put(namespace, HostedLedger::Running { info, incarnation, node });
        let name = namespace.to_owned();
        Ok(async move {
            let result = task.run(waiting, received, store).await;
            if let Err(error) = &result {
                tracing::error!(namespace = name, %error, "stopped a ledger's node after an error");
            }
            ended.send_replace(Some(result.err().unwrap_or(Error::Stopped)));
        })
    }
}

impl<M: NodeMachine> Drop for StopOnDrop<M> {
    fn drop(&mut self) {
        self.0.registry.clear();
        self.0.running().clear();
        self.0.peers.clear();
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<M: NodeMachine> fmt::Debug for Host<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({}, {:?})", self.contact(), self.ledgers())
    }
}
