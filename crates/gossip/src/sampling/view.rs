//! Arcs to others: few, aged, some of them double.

use fastrand::Rng;
use holdoff_net::PublicKey;

use super::{MAX_ARCS, MAX_EXCHANGED, Peer};

/// Who has lost more makes new ones: fewer do not hold a town of any size together.
pub(super) const FEW: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct View(Vec<Arc>);

#[derive(Clone, Debug)]
struct Arc {
    peer: Peer,
    /// In exchanges.
    age: u32,
}

impl View {
    pub(super) fn of(peers: impl Iterator<Item = Peer>) -> Self {
        Self(peers.take(MAX_ARCS).map(|peer| Arc { peer, age: 0 }).collect())
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter().map(|arc| &arc.peer)
    }

    /// The other ends, one for each arc.
    pub(super) fn others(&self, but: &PublicKey) -> Vec<PublicKey> {
        self.peers().map(|peer| peer.key).filter(|key| key != but).collect()
    }

    pub(super) fn has(&self, whom: &PublicKey) -> bool {
        self.peers().any(|peer| peer.key == *whom)
    }

    /// The oldest arc leads to this one instead, and stays the oldest. Where there are few, it is one more.
    pub(super) fn turn_to(&mut self, to: Peer) {
        let oldest = self.0.iter().map(|arc| arc.age).max().unwrap_or_default();
        if self.0.len() >= FEW
            && let Some(at) = self.0.iter().position(|arc| arc.age == oldest)
        {
            self.0.swap_remove(at);
        }
        self.0.push(Arc { peer: to, age: oldest.saturating_add(1) });
    }

    /// One more arc, if there is room. Where there is none, there are enough.
    pub(super) fn add(&mut self, peer: Peer) {
        if self.0.len() < MAX_ARCS {
            self.0.push(Arc { peer, age: 0 });
        }
    }

    /// The neighbour that was not exchanged with for longest; all others grow older.
    pub(super) fn oldest(&mut self) -> Option<PublicKey> {
        for arc in &mut self.0 {
            arc.age = arc.age.saturating_add(1);
        }
        Some(self.0.iter().max_by_key(|arc| arc.age)?.peer.key)
    }

    /// Half of the arcs at random, rounded up; one to this neighbour among them.
    pub(super) fn half(&self, with: Option<&PublicKey>, rng: &mut Rng) -> Vec<Peer> {
        let mut peers: Vec<_> = self.peers().cloned().collect();
        rng.shuffle(&mut peers);
        if let Some(at) = with.and_then(|with| peers.iter().position(|peer| peer.key == *with)) {
            peers.swap(0, at);
        }
        peers.truncate(self.0.len().div_ceil(2).min(MAX_EXCHANGED));
        peers
    }

    /// What was given goes, as far as it is still there, and what was got comes.
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

    /// All arcs to somebody are lost. Each is made up for by doubling another, but for one in as many as there are:
    /// who is gone needs no arcs of its own any more. Says how many were lost.
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
