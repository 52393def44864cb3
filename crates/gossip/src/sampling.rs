//! Peer sampling: a full mesh for small groups, a small random view for large groups.
//!
//! Above ten nodes it works in the manner of SPRAY (Nédelec, Tanke, Molli, Mostefaoui, Frey). The first node that a new
//! node knows introduces it to all its neighbours, so that views grow with the logarithm of the number of nodes. At
//! intervals a node swaps half of its arcs with its oldest neighbour, so that views stay random; an exchange neither
//! creates nor loses arcs. Arcs may be duplicate. A node removes the arcs to an unreachable peer, and replaces most of
//! them by duplicating other arcs.
//!
//! In addition to SPRAY, a node at times redirects an arc to a node of its configuration file. Without it, views that
//! were separated during a long partition would not notice that the other side is reachable again.

use fastrand::Rng;
use holdoff_net::PublicKey;
use serde::{Deserialize, Serialize};

use crate::{GossipCounters, Message};

/// The size up to which all nodes know each other (full mesh).
pub const MAX_FULL_MESH: usize = 10;
/// The maximum number of arcs in a view.
pub const MAX_ARCS: usize = 32;
/// The maximum number of arcs in an exchange.
pub const MAX_EXCHANGED: usize = MAX_ARCS / 2;

/// In one exchange of this many the node turns to a contact from its file, if there is a contact that the view lacks.
const BACK_TO_FILE: usize = 4;

/// A node's knowledge of other nodes.
#[derive(Clone, Debug)]
pub struct Sampling {
    me: GossipPeer,
    /// The nodes in the configuration file. The node begins with them, and begins again with them when it has lost all
    /// arcs.
    contacts: Vec<GossipPeer>,
    known: Known,
}

#[derive(Clone, Debug)]
enum Known {
    All(Vec<GossipPeer>),
    Some { view: View, pending: Option<PendingExchange>, rounds: u32, taken: bool },
}

/// An exchange without an answer yet.
#[derive(Clone, Debug)]
struct PendingExchange {
    peer: PublicKey,
    given: Vec<GossipPeer>,
}

impl Sampling {
    /// Creates the sampling. If the contacts are all other nodes and few enough, the nodes form a full mesh. Otherwise
    /// the contacts are the nodes to begin with.
    pub fn new(me: GossipPeer, mut contacts: Vec<GossipPeer>, is_all: bool) -> Self {
        contacts.retain(|peer| peer.key != me.key);
        contacts.truncate(MAX_ARCS);
        let known = if is_all && contacts.len() < MAX_FULL_MESH {
            Known::All(contacts.clone())
        } else {
            let view = View::of(contacts.iter().take(FEW).cloned());
            Known::Some { view, pending: None, rounds: 0, taken: false }
        };
        Self { me, contacts, known }
    }

    /// Returns the node itself.
    pub fn me(&self) -> &GossipPeer {
        &self.me
    }

    /// Returns all peers that the node may send to. A peer with duplicate arcs appears more than once.
    pub fn peers(&self) -> Vec<&GossipPeer> {
        match &self.known {
            Known::All(peers) => peers.iter().collect(),
            Known::Some { view, .. } => view.peers().collect(),
        }
    }

    /// Returns at most `limit` distinct peers, chosen at random.
    pub fn some(&self, limit: usize, rng: &mut Rng) -> Vec<PublicKey> {
        let mut keys: Vec<_> = self.peers().into_iter().map(|peer| peer.key).collect();
        keys.sort_unstable();
        keys.dedup();
        rng.shuffle(&mut keys);
        keys.truncate(limit);
        keys
    }

    /// Returns the message that announces this node to the first peer of its view. None in a full mesh.
    pub fn join(&self) -> Option<(PublicKey, Message)> {
        let Known::Some { view, .. } = &self.known else { return None };
        Some((view.peers().next()?.key, Message::Join(self.me.clone())))
    }

    /// Performs a round. Every `every` rounds the node begins an exchange of arcs.
    pub fn tick(
        &mut self,
        every: u32,
        rng: &mut Rng,
        counts: &mut GossipCounters,
    ) -> Option<(PublicKey, Message)> {
        let Known::Some { rounds, taken, pending, .. } = &mut self.known else { return None };
        (*taken, *rounds) = (false, rounds.saturating_add(1));
        if *rounds < every {
            return None;
        }
        *rounds = 0;
        if let Some(PendingExchange { peer, .. }) = pending.take() {
            self.remove_peer(&peer, rng, counts);
        }
        self.exchange(rng, counts).or_else(|| self.begin_again())
    }

    /// Removes all arcs to an unreachable peer. In a full mesh the peer stays, because it may return.
    pub fn remove_peer(&mut self, key: &PublicKey, rng: &mut Rng, counts: &mut GossipCounters) {
        if let Known::Some { view, .. } = &mut self.known {
            counts.lost_arcs += view.remove_peer(key, rng);
        }
    }

    /// Handles a message about arcs, and returns the answers and their receivers.
    pub fn receive(&mut self, from: PublicKey, message: Message, rng: &mut Rng) -> Vec<(PublicKey, Message)> {
        let Known::Some { view, pending, taken, .. } = &mut self.known else { return Vec::new() };
        match message {
            Message::Join(peer) if peer.key == from && from != self.me.key => {
                let receivers: Vec<_> = view.others(&from);
                if receivers.is_empty() {
                    view.add(peer.clone());
                }
                receivers.into_iter().map(|to| (to, Message::Introduce(peer.clone()))).collect()
            }
            Message::Introduce(peer) if peer.key != self.me.key => {
                view.add(peer);
                Vec::new()
            }
            // At most one exchange a round: no peer can replace a view at will.
            Message::Exchange(theirs)
                if !*taken
                    && theirs.len() <= MAX_EXCHANGED
                    && theirs.first().is_some_and(|peer| peer.key == from) =>
            {
                *taken = true;
                let given = view.half(None, rng);
                view.swap(&given, theirs, &self.me.key);
                vec![(from, Message::Exchanged(replace_receiver(given, &from, &self.me)))]
            }
            Message::Exchange(_) if *taken => vec![(from, Message::Busy)],
            Message::Busy => {
                pending.take_if(|exchange| exchange.peer == from);
                Vec::new()
            }
            Message::Exchanged(theirs)
                if theirs.len() <= MAX_EXCHANGED
                    && pending.as_ref().is_some_and(|exchange| exchange.peer == from) =>
            {
                if let Some(PendingExchange { given, .. }) = pending.take() {
                    view.swap(&given, theirs, &self.me.key);
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn exchange(&mut self, rng: &mut Rng, counts: &mut GossipCounters) -> Option<(PublicKey, Message)> {
        let Known::Some { view, pending, .. } = &mut self.known else { return None };
        if rng.usize(0..BACK_TO_FILE) == 0 {
            let missing: Vec<_> = self.contacts.iter().filter(|peer| !view.has(&peer.key)).collect();
            if let Some(contact) = rng.choice(missing) {
                view.turn_to(contact.clone());
            }
        }
        let oldest = view.oldest()?;
        let given = view.half(Some(&oldest), rng);
        let mut offered = replace_receiver(given.clone(), &oldest, &self.me);
        // The arc to the receiver has become an arc to the sender; it comes first.
        if let Some(at) = offered.iter().position(|peer| peer.key == self.me.key) {
            offered.swap(0, at);
        }
        *pending = Some(PendingExchange { peer: oldest, given });
        counts.exchanges += 1;
        Some((oldest, Message::Exchange(offered)))
    }

    /// Begins again with the contacts after all arcs were lost.
    fn begin_again(&mut self) -> Option<(PublicKey, Message)> {
        let Known::Some { view, .. } = &mut self.known else { return None };
        *view = View::of(self.contacts.iter().take(FEW).cloned());
        self.join()
    }
}

/// Replaces arcs to the receiver, which would be useless to it, with arcs to the sender.
fn replace_receiver(given: Vec<GossipPeer>, to: &PublicKey, me: &GossipPeer) -> Vec<GossipPeer> {
    given.into_iter().map(|peer| if peer.key == *to { me.clone() } else { peer }).collect()
}

const LONGEST: usize = 64;

/// Another node and its address. The node at the address must prove its key, so that a wrong address does no harm.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GossipPeer {
    /// The peer's public key.
    pub key: PublicKey,
    /// The peer's address.
    pub address: GossipAddress,
}

/// A host and a port as text, at most 64 bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GossipAddress(String);

/// The error for a text that is not an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid address: use 1 to {LONGEST} bytes without whitespace")]
pub struct BadGossipAddress;

impl TryFrom<String> for GossipAddress {
    type Error = BadGossipAddress;

    fn try_from(text: String) -> Result<Self, BadGossipAddress> {
        let is_blank = |character: char| character.is_whitespace() || character.is_control();
        match text.len() {
            1..=LONGEST if !text.contains(is_blank) => Ok(Self(text)),
            _ => Err(BadGossipAddress),
        }
    }
}

impl From<GossipAddress> for String {
    fn from(GossipAddress(text): GossipAddress) -> Self {
        text
    }
}

impl AsRef<str> for GossipAddress {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The minimum number of arcs. A view with fewer arcs gains arcs, because fewer do not keep a large group connected.
const FEW: usize = 3;

#[derive(Clone, Debug)]
struct View(Vec<Arc>);

#[derive(Clone, Debug)]
struct Arc {
    peer: GossipPeer,
    /// The age, counted in exchanges.
    age: u32,
}

impl View {
    fn of(peers: impl Iterator<Item = GossipPeer>) -> Self {
        Self(peers.take(MAX_ARCS).map(|peer| Arc { peer, age: 0 }).collect())
    }

    fn peers(&self) -> impl Iterator<Item = &GossipPeer> {
        self.0.iter().map(|arc| &arc.peer)
    }

    /// Returns the peers except this one, once for each arc.
    fn others(&self, but: &PublicKey) -> Vec<PublicKey> {
        self.peers().map(|peer| peer.key).filter(|key| key != but).collect()
    }

    fn has(&self, key: &PublicKey) -> bool {
        self.peers().any(|peer| peer.key == *key)
    }

    /// Redirects the oldest arc to a peer; the arc stays the oldest. A view with fewer than [`FEW`] arcs gains an arc
    /// instead.
    fn turn_to(&mut self, to: GossipPeer) {
        let oldest = self.0.iter().map(|arc| arc.age).max().unwrap_or_default();
        if self.0.len() >= FEW
            && let Some(at) = self.0.iter().position(|arc| arc.age == oldest)
        {
            self.0.swap_remove(at);
        }
        self.0.push(Arc { peer: to, age: oldest.saturating_add(1) });
    }

    /// Adds an arc, if there is room. A full view has enough arcs.
    fn add(&mut self, peer: GossipPeer) {
        if self.0.len() < MAX_ARCS {
            self.0.push(Arc { peer, age: 0 });
        }
    }

    /// Returns the neighbour with the oldest arc, after all arcs have aged by one exchange.
    fn oldest(&mut self) -> Option<PublicKey> {
        for arc in &mut self.0 {
            arc.age = arc.age.saturating_add(1);
        }
        Some(self.0.iter().max_by_key(|arc| arc.age)?.peer.key)
    }

    /// Returns half of the arcs at random, rounded up. If a neighbour is given, an arc to it is among them.
    fn half(&self, with: Option<&PublicKey>, rng: &mut Rng) -> Vec<GossipPeer> {
        let mut peers: Vec<_> = self.peers().cloned().collect();
        rng.shuffle(&mut peers);
        if let Some(at) = with.and_then(|with| peers.iter().position(|peer| peer.key == *with)) {
            peers.swap(0, at);
        }
        peers.truncate(self.0.len().div_ceil(2).min(MAX_EXCHANGED));
        peers
    }

    /// Removes the arcs that were given, as far as they still exist, and adds the arcs that were received.
    fn swap(&mut self, given: &[GossipPeer], got: Vec<GossipPeer>, me: &PublicKey) {
        for gone in given {
            if let Some(at) = self.0.iter().position(|arc| arc.peer.key == gone.key) {
                self.0.swap_remove(at);
            }
        }
        for peer in got.into_iter().filter(|peer| peer.key != *me) {
            self.add(peer);
        }
    }

    /// Removes all arcs to a peer and returns their number. Each lost arc is replaced by a duplicate of another, except
    /// for one in as many as the view has: the lost peer needs no arcs of its own any more.
    fn remove_peer(&mut self, key: &PublicKey, rng: &mut Rng) -> u64 {
        let before = self.0.len();
        self.0.retain(|arc| arc.peer.key != *key);
        let lost = before - self.0.len();
        for _ in 0..lost {
            let is_replaced = rng.usize(0..before.max(1)) > 0;
            if let Some(arc) = rng.choice(&self.0).cloned().filter(|_| is_replaced) {
                self.add(arc.peer);
            }
        }
        u64::try_from(lost).unwrap_or(u64::MAX)
    }
}
