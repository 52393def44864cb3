//! A partial view: a small set of arcs to peers, with their ages. Arcs may be duplicate.

use fastrand::Rng;
use holdoff_net::PublicKey;

use super::{MAX_ARCS, MAX_EXCHANGED, Peer};

/// The minimum number of arcs. A view with fewer arcs gains arcs, because fewer do not keep a large group connected.
pub(super) const FEW: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct View(Vec<Arc>);

#[derive(Clone, Debug)]
struct Arc {
    peer: Peer,
    /// The age, counted in exchanges.
    age: u32,
}

impl View {
    pub(super) fn of(peers: impl Iterator<Item = Peer>) -> Self {
        Self(peers.take(MAX_ARCS).map(|peer| Arc { peer, age: 0 }).collect())
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter().map(|arc| &arc.peer)
    }

    /// Returns the peers except this one, once for each arc.
    pub(super) fn others(&self, but: &PublicKey) -> Vec<PublicKey> {
        self.peers().map(|peer| peer.key).filter(|key| key != but).collect()
    }

    pub(super) fn has(&self, whom: &PublicKey) -> bool {
        self.peers().any(|peer| peer.key == *whom)
    }

    /// Redirects the oldest arc to a peer; the arc stays the oldest. A view with fewer than [`FEW`] arcs gains an arc
    /// instead.
    pub(super) fn turn_to(&mut self, to: Peer) {
        let oldest = self.0.iter().map(|arc| arc.age).max().unwrap_or_default();
        if self.0.len() >= FEW
            && let Some(at) = self.0.iter().position(|arc| arc.age == oldest)
        {
            self.0.swap_remove(at);
        }
        self.0.push(Arc { peer: to, age: oldest.saturating_add(1) });
    }

    /// Adds an arc, if there is room. A full view has enough arcs.
    pub(super) fn add(&mut self, peer: Peer) {
        if self.0.len() < MAX_ARCS {
            self.0.push(Arc { peer, age: 0 });
        }
    }

    /// Returns the neighbour with the oldest arc, after all arcs have aged by one exchange.
    pub(super) fn oldest(&mut self) -> Option<PublicKey> {
        for arc in &mut self.0 {
            arc.age = arc.age.saturating_add(1);
        }
        Some(self.0.iter().max_by_key(|arc| arc.age)?.peer.key)
    }

    /// Returns half of the arcs at random, rounded up. If a neighbour is given, an arc to it is among them.
    pub(super) fn half(&self, with: Option<&PublicKey>, rng: &mut Rng) -> Vec<Peer> {
        let mut peers: Vec<_> = self.peers().cloned().collect();
        rng.shuffle(&mut peers);
        if let Some(at) = with.and_then(|with| peers.iter().position(|peer| peer.key == *with)) {
            peers.swap(0, at);
        }
        peers.truncate(self.0.len().div_ceil(2).min(MAX_EXCHANGED));
        peers
    }

    /// Removes the arcs that were given, as far as they still exist, and adds the arcs that were received.
    pub(super) fn swap(&mut self, given: &[Peer], got: Vec<Peer>, me: &PublicKey) {
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
    pub(super) fn lose(&mut self, whom: &PublicKey, rng: &mut Rng) -> u64 {
        let before = self.0.len();
        self.0.retain(|arc| arc.peer.key != *whom);
        let lost = before - self.0.len();
        for _ in 0..lost {
            let is_made_up_for = rng.usize(0..before.max(1)) > 0;
            if let Some(arc) = rng.choice(&self.0).cloned().filter(|_| is_made_up_for) {
                self.add(arc.peer);
            }
        }
        u64::try_from(lost).unwrap_or(u64::MAX)
    }
}
