//! The service for peers: it dispatches their requests and packets to the ledgers of this process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_net::{AllowList, ConnectionId, Handler, HandlerError, Peer, PublicKey, QueueError};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::watch;

use super::NodeMachine;
use super::error::DescribeRejection;
use super::identity::LedgerId;
use super::node::Node;
use super::store::LedgerInfo;
use super::task::{LeaderError, ReceivedEnvelope};
use super::wire::{Envelope, Packet, Reassembly, Reply, Request};
use crate::metrics;

/// The ledgers of a process, by namespace.
pub(super) struct Registry<M: NodeMachine> {
    ledgers: RwLock<BTreeMap<String, HostedLedger<M>>>,
    changes: watch::Sender<u64>,
}

/// A ledger of this process.
pub(super) enum HostedLedger<M: NodeMachine> {
    /// The node does not know the ledger's id yet, and asks these members.
    Joining(Vec<PublicKey>),
    /// The node runs.
    Running { info: LedgerInfo, incarnation: u64, node: Node<M> },
}

impl<M: NodeMachine> Default for Registry<M> {
    fn default() -> Self {
        Self { ledgers: RwLock::default(), changes: watch::Sender::new(0) }
    }
}

impl<M: NodeMachine> Registry<M> {
    /// Returns the allow-list of the server: the members of all ledgers of this process.
    pub(super) fn allow_list(registry: &Arc<Self>) -> AllowList {
        let registry = Arc::downgrade(registry);
        AllowList::when(move |key| {
            registry
                .upgrade()
                .is_some_and(|registry| registry.read().values().any(|ledger| ledger.knows(key)))
        })
    }

    pub(super) fn put(&self, namespace: &str, ledger: HostedLedger<M>) {
        self.ledgers.write().insert(namespace.to_owned(), ledger);
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn has(&self, namespace: &str) -> bool {
        self.read().contains_key(namespace)
    }

    pub(super) fn node(&self, namespace: &str) -> Option<Node<M>> {
        self.read().get(namespace)?.node()
    }

    pub(super) fn names(&self) -> Vec<(String, bool)> {
        let open = |ledger: &HostedLedger<M>| matches!(ledger, HostedLedger::Running { .. });
        self.read().iter().map(|(name, ledger)| (name.clone(), open(ledger))).collect()
    }

    /// Returns a receiver that is notified of every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Removes all ledgers, and returns the running nodes.
    pub(super) fn clear(&self) -> Vec<Node<M>> {
        let ledgers = std::mem::take(&mut *self.ledgers.write());
        ledgers.values().filter_map(HostedLedger::node).collect()
    }

    fn by_id(&self, ledger: LedgerId) -> Option<Node<M>> {
        self.read().values().filter_map(HostedLedger::node).find(|node| node.shared.ledger == ledger)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, HostedLedger<M>>> {
        self.ledgers.read()
    }
}

impl<M: NodeMachine> HostedLedger<M> {
    fn knows(&self, key: &PublicKey) -> bool {
        match self {
            Self::Joining(contacts) => contacts.contains(key),
            Self::Running { node, .. } => node.shared.address_book.contains(key),
        }
    }

    fn node(&self) -> Option<Node<M>> {
        match self {
            Self::Joining(_) => None,
            Self::Running { node, .. } => Some(node.clone()),
        }
    }
}

/// Handles the requests and packets of peers.
pub(super) struct PeerService<M: NodeMachine> {
    registry: Arc<Registry<M>>,
    fragments: Mutex<HashMap<(ConnectionId, LedgerId), Reassembly>>,
}

impl<M: NodeMachine> PeerService<M> {
    pub(super) fn new(registry: Arc<Registry<M>>) -> Self {
        Self { registry, fragments: Mutex::default() }
    }

    /// Returns the envelope, reassembled from fragments if necessary, or `None` while fragments are missing.
    fn reassemble(&self, peer: ConnectionId, ledger: LedgerId, envelope: Envelope) -> Option<Envelope> {
        let Envelope::Fragment(is_last, fragment) = envelope else { return Some(envelope) };
        let mut fragments = self.fragments.lock();
        let whole = fragments.entry((peer, ledger)).or_default().add(is_last, &fragment);
        if is_last {
            fragments.remove(&(peer, ledger));
        }
        whole.map(Envelope::Message)
    }

    async fn answer(&self, peer: &Peer, request: Request) -> Result<Reply, HandlerError> {
        let stopped = |error: super::Error| HandlerError::transient(error.to_string());
        let unknown = || HandlerError::permanent("unknown ledger, or not a member of it");
        match request {
            Request::DescribeLedger(namespace) => Ok(self.describe(peer, &namespace)),
            Request::Read { ledger, goal, consistency } => {
                let node =
                    self.registry.by_id(ledger).filter(|node| node.shared.address_book.contains(&peer.key()));
                let node = node.ok_or_else(unknown)?;
                let goal =
                    holdoff_net::decode(&goal).map_err(|error| HandlerError::permanent(error.to_string()))?;
                match node.read_here(goal, consistency).await.map_err(stopped)? {
                    Ok((index, answer)) => {
                        let answer = holdoff_net::encode(&answer);
                        Ok(Reply::Read(
                            index,
                            answer.map_err(|error| HandlerError::permanent(error.to_string()))?,
                        ))
                    }
                    Err(leader) => Ok(Reply::NotLeader(leader)),
                }
            }
            Request::LeaderCommand { ledger, command } => {
                let node =
                    self.registry.by_id(ledger).filter(|node| node.shared.address_book.contains(&peer.key()));
                match node.ok_or_else(unknown)?.execute_as_leader(command).await.map_err(stopped)? {
                    Ok(target) => Ok(Reply::Done(target)),
                    Err(LeaderError::NotLeader(leader)) => Ok(Reply::NotLeader(leader)),
                    Err(LeaderError::Rejected(why)) => Ok(Reply::NotTransferred(why)),
                }
            }
        }
    }

    /// Returns the ledger with this name, if the peer is a member of it.
    fn describe(&self, peer: &Peer, namespace: &str) -> Reply {
        match self.registry.read().get(namespace) {
            Some(HostedLedger::Running { info, incarnation, node })
                if node.shared.address_book.contains(&peer.key()) =>
            {
                Reply::Ledger {
                    info: *info,
                    incarnation: *incarnation,
                    members: node.shared.address_book.members(),
                }
            }
            Some(HostedLedger::Running { .. }) => Reply::NotDescribed(DescribeRejection::NotAMember),
            Some(HostedLedger::Joining(_)) => Reply::NotDescribed(DescribeRejection::NotJoined),
            None => Reply::NotDescribed(DescribeRejection::UnknownLedger),
        }
    }
}

#[async_trait]
impl<M: NodeMachine> Handler for PeerService<M> {
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        let request =
            holdoff_net::decode(&request).map_err(|error| HandlerError::permanent(error.to_string()))?;
        let reply = self.answer(peer, request).await?;
        holdoff_net::encode(&reply).map_err(|error| HandlerError::permanent(error.to_string()))
    }

    /// Passes packets to their ledgers. Disconnects a peer that sends undecodable bytes.
    async fn on_message(&self, peer: &Peer, message: Bytes) {
        let Ok(packets) = holdoff_net::decode::<Vec<Packet>>(&message) else {
            peer.disconnect();
            return;
        };
        for Packet { ledger, incarnation, envelope } in packets {
            let Some(node) = self.registry.by_id(ledger) else { continue };
            let Some(envelope) = self.reassemble(peer.id(), ledger, envelope) else { continue };
            let bytes = envelope.bytes();
            let received = ReceivedEnvelope { from: peer.key(), incarnation, envelope };
            // A ledger that is slow loses its own messages; the others on this link go on. A closed queue means that the
            // node has stopped. Its host has logged the reason.
            if node.shared.inbox.try_send(received, bytes) == Err(QueueError::Full) {
                metrics::dropped(&node.shared.namespace, "in");
            }
        }
    }

    fn on_disconnect(&self, peer: &Peer) {
        let mut fragments = self.fragments.lock();
        fragments.retain(|(of, _), _| *of != peer.id());
    }
}
