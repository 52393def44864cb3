//! All ledgers of one process: one key, one door, one line to each other node.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_net::{Key, PublicKey, Server, ServerOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::book::Book;
use super::door::{Door, Room, Rooms};
use super::identity::{LedgerId, node_id};
use super::joining::{self, Contact, Learned};
use super::lines::{self, Lines};
use super::node::{Node, Shared};
use super::roster::Member;
use super::store::{About, Store};
use super::task::{Event, Parts, Task};
use super::wire::ROLE;
use super::{Error, Housed, Settings, clock, writer};

const KEY: &str = "node.key";
const EXTENSION: &str = "redb";
/// As many things may wait for a node's task; whoever brings more waits.
const EVENTS: usize = 4096;
/// As many connections one node may have here: an old one may not have noticed yet that it is over.
const CONNECTIONS_WITH_KEY: usize = 8;
/// How long the disk may take at the end.
const LAST_COMMIT: Duration = Duration::from_secs(10);

/// All ledgers of one process, while it runs. Dropped, it stops them.
pub struct Host<M: Housed> {
    server: Server,
    inside: Arc<Inside<M>>,
    _ending: Ending<M>,
}

/// Ends all that runs when the host is dropped.
struct Ending<M: Housed>(Arc<Inside<M>>);

struct Inside<M: Housed> {
    key: Key,
    address: String,
    settings: Settings,
    lines: Arc<Lines>,
    rooms: Arc<Rooms<M>>,
    /// What runs, by the name of its ledger.
    running: Mutex<BTreeMap<String, Running>>,
}

/// A task that ends when nobody keeps it.
#[derive(Debug)]
struct Running(JoinHandle<()>);

/// Makes a new ledger with this name in this directory, which this node decides alone until others come.
///
/// Nothing runs by that: start a [`Host`] on the directory. Returns the node's key.
pub fn found(data: &Path, namespace: &str) -> Result<(PublicKey, LedgerId), Error> {
    let (key, store) = begin(data, namespace)?;
    let about = new_ledger(&key, &store)?;
    Ok((key.public(), about.ledger))
}

/// Makes room for a ledger with this name in this directory, of which these are members.
///
/// Nothing runs by that: have a member admit the key that is returned, and start a [`Host`] on the directory.
pub fn join(data: &Path, namespace: &str, contacts: &[Contact]) -> Result<PublicKey, Error> {
    let (key, store) = begin(data, namespace)?;
    store.remember(&contacts)?;
    Ok(key.public())
}

fn begin(data: &Path, namespace: &str) -> Result<(Key, Store), Error> {
    let path = path(data, namespace)?;
    make(data)?;
    let key = Key::load_or_create(data.join(KEY))?;
    let store = Store::open(&path)?;
    if store.is_of_something()? {
        return Err(Error::IsThere(namespace.to_owned()));
    }
    Ok((key, store))
}

fn new_ledger(key: &Key, store: &Store) -> Result<About, Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Error::NotNow(error.to_string()))?;
    let about = About { ledger: LedgerId(id), founder: node_id(&key.public(), store.life()) };
    store.enter(&about)?;
    Ok(about)
}

fn make(data: &Path) -> Result<(), Error> {
    holdoff_disk::folder::make(data).map_err(|error| Error::Disk(format!("{}: {error}", data.display())))
}

/// A namespace is the name of a file.
fn path(data: &Path, namespace: &str) -> Result<PathBuf, Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if (1..=64).contains(&namespace.len()) && namespace.bytes().all(is_plain) {
        return Ok(data.join(format!("{namespace}.{EXTENSION}")));
    }
    Err(Error::BadNamespace(namespace.to_owned()))
}

/// The names of the ledgers in a directory.
fn namespaces(data: &Path) -> Result<Vec<String>, Error> {
    let failed = |error: std::io::Error| Error::Disk(format!("{}: {error}", data.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_store = path.extension().is_some_and(|extension| extension == EXTENSION);
        found.extend(path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_store).map(str::to_owned));
    }
    found.sort();
    Ok(found)
}

impl<M: Housed> Host<M> {
    /// Starts all ledgers that are in the directory.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        make(&settings.data)?;
        let key = Key::load_or_create(settings.data.join(KEY))?;
        let rooms = Arc::new(Rooms::default());
        let options = ServerOptions {
            allow: Rooms::allow(&rooms),
            roles: vec![ROLE.to_owned()],
            max_connections_with_key: CONNECTIONS_WITH_KEY,
            limits: lines::limits(),
            ..ServerOptions::default()
        };
        let server =
            Server::start(&key, &settings.listen.to_string(), Door::new(rooms.clone()), options).await?;
        let address = settings.advertise.clone().unwrap_or_else(|| server.address().to_string());
        let lines = Arc::new(Lines::new(key.clone())?);
        let inside = Inside { key, address, settings, lines, rooms, running: Mutex::default() };
        let inside = Arc::new(inside);
        let host = Self { server, inside: inside.clone(), _ending: Ending(inside) };
        if !host.inside.settings.in_memory {
            for namespace in namespaces(&host.inside.settings.data)? {
                let store = Store::open(&path(&host.inside.settings.data, &namespace)?)?;
                Inside::take_up(&host.inside, &namespace, store)?;
            }
        }
        Ok(host)
    }

    /// Makes a new ledger with this name, which this node decides alone until others come, and starts it.
    pub fn found(&self, namespace: &str) -> Result<Node<M>, Error> {
        let store = self.inside.new_store(namespace)?;
        new_ledger(&self.inside.key, &store)?;
        Inside::take_up(&self.inside, namespace, store)?;
        self.ledger(namespace).ok_or_else(|| Error::NoLedger(namespace.to_owned()))
    }

    /// Joins a ledger with this name, of which these are members, as soon as one of them has admitted this node.
    pub fn join(&self, namespace: &str, contacts: &[Contact]) -> Result<(), Error> {
        let store = self.inside.new_store(namespace)?;
        store.remember(&contacts)?;
        Inside::take_up(&self.inside, namespace, store)
    }

    /// Who this node is.
    pub fn key(&self) -> PublicKey {
        self.inside.key.public()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Who it is, and where, for others.
    pub fn contact(&self) -> Contact {
        Contact { key: self.key(), address: self.inside.address.clone() }
    }

    /// The ledger with this name, once it is known which one that is.
    pub fn ledger(&self, namespace: &str) -> Option<Node<M>> {
        self.inside.rooms.node(namespace)
    }

    /// The names of all ledgers, and whether it is known yet which ones they are.
    pub fn ledgers(&self) -> Vec<(String, bool)> {
        self.inside.rooms.names()
    }

    /// A way to the ledgers. Whoever keeps this does not keep them running.
    pub fn ledgers_by_name(
        &self,
    ) -> impl Fn(&str) -> Option<Node<M>> + Clone + Send + Sync + 'static + use<M> {
        let rooms = self.inside.rooms.clone();
        move |namespace| rooms.node(namespace)
    }

    /// A way to the names of all ledgers, as [`ledgers`](Self::ledgers) has them.
    pub fn names(&self) -> impl Fn() -> Vec<(String, bool)> + Clone + Send + Sync + 'static + use<M> {
        let rooms = self.inside.rooms.clone();
        move || rooms.names()
    }

    /// Waits until the ledger with this name is known here.
    pub async fn joined(&self, namespace: &str, within: Duration) -> Result<Node<M>, Error> {
        let mut changes = self.inside.rooms.changes();
        let known = async {
            loop {
                if let Some(node) = self.ledger(namespace) {
                    return Some(node);
                }
                changes.changed().await.ok()?;
            }
        };
        let node = clock::within(within, known).await.ok().flatten();
        node.ok_or_else(|| Error::NoLedger(namespace.to_owned()))
    }

    /// Ends all ledgers; when this returns another process may open them.
    pub async fn stop(self, grace: Duration) {
        let open = self.inside.rooms.clear();
        for node in &open {
            // An error means that it has ended already.
            drop(node.events.send(Event::Stop).await);
        }
        let running = std::mem::take(&mut *self.inside.running());
        for (namespace, mut running) in running {
            if !open.iter().any(|node| node.namespace() == namespace) {
                continue;
            }
            if clock::within(LAST_COMMIT, &mut running.0).await.is_err() {
                tracing::warn!(namespace, "a ledger's disk takes long; it is left behind");
            }
        }
        self.inside.lines.clear();
        self.server.shutdown(grace).await;
    }
}

impl<M: Housed> Inside<M> {
    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty store for a ledger that is not there yet.
    fn new_store(&self, namespace: &str) -> Result<Store, Error> {
        let path = path(&self.settings.data, namespace)?;
        if self.rooms.has(namespace) {
            return Err(Error::IsThere(namespace.to_owned()));
        }
        if self.settings.in_memory {
            return Store::in_memory();
        }
        let store = Store::open(&path)?;
        if store.is_of_something()? { Err(Error::IsThere(namespace.to_owned())) } else { Ok(store) }
    }

    /// Starts what is in a store: a ledger, or the attempt to join one.
    fn take_up(inside: &Arc<Self>, namespace: &str, store: Store) -> Result<(), Error> {
        let contacts: Vec<Contact> = store.contacts()?.unwrap_or_default();
        let (name, inside_too) = (namespace.to_owned(), inside.clone());
        let task = if store.about()?.is_some() {
            tokio::spawn(inside.open(namespace, store, Vec::new(), contacts)?)
        } else {
            let keys = contacts.iter().map(|contact| contact.key).collect();
            inside.rooms.put(namespace, Room::Joining(keys));
            tokio::spawn(async move {
                let Learned { about, members } = joining::learn(&name, &contacts, &inside_too.lines).await;
                let opened = store.enter(&about);
                match opened.and_then(|()| inside_too.open(&name, store, members, Vec::new())) {
                    Ok(runs) => runs.await,
                    Err(error) => tracing::error!(namespace = name, %error, "the ledger could not be opened"),
                }
            })
        };
        inside.running().insert(namespace.to_owned(), Running(task));
        Ok(())
    }

    /// Opens a ledger of which something is known; what is returned runs it. Who must be asked for members is asked
    /// meanwhile.
    fn open(
        &self,
        namespace: &str,
        store: Store,
        members: Vec<(PublicKey, Member)>,
        contacts: Vec<Contact>,
    ) -> Result<impl Future<Output = ()> + Send + 'static + use<M>, Error> {
        let about = store.about()?.ok_or_else(|| Error::NoLedger(namespace.to_owned()))?;
        let (life, book) = (store.life(), Arc::new(Book::default()));
        let parts = Parts {
            namespace: namespace.to_owned(),
            about,
            key: self.key.clone(),
            life,
            address: self.address.clone(),
            settings: self.settings.clone(),
            store: store.load::<super::Estate<M>>(&about)?,
            contacts: members,
            book: book.clone(),
            lines: self.lines.clone(),
        };
        let (task, glance) = Task::<M>::new(parts)?;
        let (events, waiting) = mpsc::channel(EVENTS);
        let (disk, thread) =
            writer::start(store, events.downgrade()).map_err(|error| Error::Disk(error.to_string()))?;
        let (ended, why) = watch::channel(None);
        let shared = Shared {
            ledger: about.ledger,
            namespace: namespace.to_owned(),
            key: self.key.public(),
            book,
            lines: self.lines.clone(),
            patience: self.settings.patience,
            ended: why,
        };
        let node = Node { events: events.clone(), glance, shared: Arc::new(shared) };
        let asks = !task.is_known();
        self.rooms.put(namespace, Room::Open { about, life, node });
        let (name, lines) = (namespace.to_owned(), self.lines.clone());
        let learning = async move {
            if asks && !contacts.is_empty() {
                let Learned { members, .. } = joining::learn(&name, &contacts, &lines).await;
                drop(events.send(Event::Learned(members)).await);
            }
            drop(events);
            std::future::pending::<()>().await;
        };
        let name = namespace.to_owned();
        Ok(async move {
            let result = tokio::select! {
                result = task.run(waiting, disk) => result,
                () = learning => Ok(()),
            };
            if let Err(error) = &result {
                tracing::error!(namespace = name, %error, "a ledger's node has stopped");
            }
            ended.send_replace(Some(
                result.err().unwrap_or_else(|| Error::Stopped("it was told to".to_owned())),
            ));
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
        })
    }
}

impl<M: Housed> Drop for Ending<M> {
    fn drop(&mut self) {
        self.0.rooms.clear();
        self.0.running().clear();
        self.0.lines.clear();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<M: Housed> fmt::Debug for Host<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({}, {:?})", self.contact(), self.ledgers())
    }
}
