//! What comes in from other nodes, and to which ledger it goes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_net::{Allow, Fault, Handler, Peer, PeerId, PublicKey};
use tokio::sync::watch;

use super::Housed;
use super::identity::LedgerId;
use super::node::Node;
use super::store::About;
use super::task::{Event, NotLed};
use super::wire::{Packet, Parts, Reply, Request, Said};

/// The ledgers of a process, by their names.
pub(super) struct Rooms<M: Housed> {
    rooms: RwLock<BTreeMap<String, Room<M>>>,
    changes: watch::Sender<u64>,
}

/// A ledger, as far as there is one.
pub(super) enum Room<M: Housed> {
    /// Nobody has said yet which one it is; these were asked.
    Joining(Vec<PublicKey>),
    /// It runs.
    Open { about: About, life: u64, node: Node<M> },
}

impl<M: Housed> Default for Rooms<M> {
    fn default() -> Self {
        Self { rooms: RwLock::default(), changes: watch::Sender::new(0) }
    }
}

impl<M: Housed> Rooms<M> {
    /// Members of any ledger here may come in.
    pub(super) fn allow(rooms: &Arc<Self>) -> Allow {
        let rooms = Arc::downgrade(rooms);
        Allow::when(move |key| {
            rooms.upgrade().is_some_and(|rooms| rooms.read().values().any(|room| room.knows(key)))
        })
    }

    pub(super) fn put(&self, namespace: &str, room: Room<M>) {
        self.rooms.write().unwrap_or_else(PoisonError::into_inner).insert(namespace.to_owned(), room);
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn has(&self, namespace: &str) -> bool {
        self.read().contains_key(namespace)
    }

    pub(super) fn node(&self, namespace: &str) -> Option<Node<M>> {
        self.read().get(namespace)?.node()
    }

    pub(super) fn names(&self) -> Vec<(String, bool)> {
        let open = |room: &Room<M>| matches!(room, Room::Open { .. });
        self.read().iter().map(|(name, room)| (name.clone(), open(room))).collect()
    }

    /// Says when something has changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes all out.
    pub(super) fn clear(&self) -> Vec<Node<M>> {
        let rooms = std::mem::take(&mut *self.rooms.write().unwrap_or_else(PoisonError::into_inner));
        rooms.values().filter_map(Room::node).collect()
    }

    fn by_id(&self, ledger: LedgerId) -> Option<Node<M>> {
        self.read().values().filter_map(Room::node).find(|node| node.shared.ledger == ledger)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Room<M>>> {
        self.rooms.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Housed> Room<M> {
    fn knows(&self, key: &PublicKey) -> bool {
        match self {
            Self::Joining(contacts) => contacts.contains(key),
            Self::Open { node, .. } => node.shared.book.has(key),
        }
    }

    fn node(&self) -> Option<Node<M>> {
        match self {
            Self::Joining(_) => None,
            Self::Open { node, .. } => Some(node.clone()),
        }
    }
}

/// Where others come in.
pub(super) struct Door<M: Housed> {
    rooms: Arc<Rooms<M>>,
    parts: Mutex<HashMap<(PeerId, LedgerId), Parts>>,
}

impl<M: Housed> Door<M> {
    pub(super) fn new(rooms: Arc<Rooms<M>>) -> Self {
        Self { rooms, parts: Mutex::default() }
    }

    /// The same with parts put together; nothing, while some are missing.
    fn whole(&self, peer: PeerId, ledger: LedgerId, said: Said) -> Option<Said> {
        let Said::Part(is_last, part) = said else { return Some(said) };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = parts.entry((peer, ledger)).or_default().add(is_last, &part);
        if is_last {
            parts.remove(&(peer, ledger));
        }
        whole.map(Said::Letter)
    }

    async fn answer(&self, peer: &Peer, request: Request) -> Result<Reply, Fault> {
        let stopped = |error: super::Error| Fault::transient(error.to_string());
        let unknown = || Fault::permanent("there is no such ledger here");
        match request {
            Request::Who(namespace) => Ok(self.who(peer, &namespace)),
            Request::Read { ledger, goal, how } => {
                let node = self.rooms.by_id(ledger).filter(|node| node.shared.book.has(&peer.key()));
                let node = node.ok_or_else(unknown)?;
                let goal = holdoff_net::decode(&goal).map_err(|error| Fault::permanent(error.to_string()))?;
                match node.read_here(goal, how).await.map_err(stopped)? {
                    Ok((index, answer)) => {
                        let answer = holdoff_net::encode(&answer);
                        Ok(Reply::Read(index, answer.map_err(|error| Fault::permanent(error.to_string()))?))
                    }
                    Err(leader) => Ok(Reply::Elsewhere(leader)),
                }
            }
            Request::Lead { ledger, wanted } => {
                let node = self.rooms.by_id(ledger).filter(|node| node.shared.book.has(&peer.key()));
                match node.ok_or_else(unknown)?.led(wanted).await.map_err(stopped)? {
                    Ok(who) => Ok(Reply::Done(who)),
                    Err(NotLed::Elsewhere(leader)) => Ok(Reply::Elsewhere(leader)),
                    Err(NotLed::Because(why)) => Ok(Reply::NotDone(why)),
                }
            }
        }
    }

    /// Which ledger has this name here, for a member of it.
    fn who(&self, peer: &Peer, namespace: &str) -> Reply {
        match self.rooms.read().get(namespace) {
            Some(Room::Open { about, life, node }) if node.shared.book.has(&peer.key()) => {
                Reply::Ledger { about: *about, life: *life, members: node.shared.book.members() }
            }
            Some(_) => Reply::NotDone("this node is not a member of that ledger".to_owned()),
            None => Reply::NotDone("there is no ledger with that name".to_owned()),
        }
    }
}

#[async_trait]
impl<M: Housed> Handler for Door<M> {
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, Fault> {
        let request = holdoff_net::decode(&request).map_err(|error| Fault::permanent(error.to_string()))?;
        let reply = self.answer(peer, request).await?;
        holdoff_net::encode(&reply).map_err(|error| Fault::permanent(error.to_string()))
    }

    /// What cannot be read is somebody else's mistake: that connection ends.
    async fn told(&self, peer: &Peer, message: Bytes) {
        let Ok(packets) = holdoff_net::decode::<Vec<Packet>>(&message) else {
            peer.cut();
            return;
        };
        for Packet { ledger, life, said } in packets {
            let Some(node) = self.rooms.by_id(ledger) else { continue };
            let Some(said) = self.whole(peer.id(), ledger, said) else { continue };
            // An error means that the node has stopped; so does its process, or that is somebody's business.
            drop(node.events.send(Event::Said { from: peer.key(), life, said }).await);
        }
    }

    fn left(&self, peer: &Peer) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|(of, _), _| *of != peer.id());
    }
}
