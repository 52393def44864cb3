//! The inspection interface of an acceptor.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use holdoff_net::Peer;

use super::writer::Look;
use super::{Councils, Figures, Limits, Stopped, Wish};
use crate::{NodeId, PublicKey, node_id};

/// A view of an acceptor for operators. Holding it does not keep the acceptor running.
pub struct Lookout {
    key: PublicKey,
    address: SocketAddr,
    life: u64,
    limits: Limits,
    look: Look<Peer>,
    crowd: Box<dyn Fn() -> Vec<Peer> + Send + Sync>,
}

/// The connections of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Connected {
    /// The key.
    pub key: PublicKey,
    /// The remote address of each connection.
    pub from: Vec<SocketAddr>,
}

impl Lookout {
    pub(super) fn new(
        key: PublicKey,
        address: SocketAddr,
        life: u64,
        limits: Limits,
        look: Look<Peer>,
        crowd: impl Fn() -> Vec<Peer> + Send + Sync + 'static,
    ) -> Self {
        Self { key, address, life, limits, look, crowd: Box::new(crowd) }
    }

    /// Returns the acceptor's key.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Returns the address on which the acceptor listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the incarnation of the acceptor's store.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Returns the acceptor's node id in configurations, which is derived from its key and its incarnation.
    pub fn node(&self) -> NodeId {
        node_id(&self.key, self.life)
    }

    /// Returns the acceptor's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the reason for which the acceptor has stopped answering, if it has: a disk failure, or a defect of
    /// this program.
    pub fn stopped(&self) -> Option<String> {
        self.look.stopped()
    }

    /// Returns the acceptor's counters.
    pub fn figures(&self) -> Figures {
        self.look.figures()
    }

    /// Returns the connected keys. The keys with the most connections come first.
    pub fn connected(&self) -> Vec<Connected> {
        let mut by_key: BTreeMap<PublicKey, Vec<SocketAddr>> = BTreeMap::new();
        for peer in (self.crowd)() {
            by_key.entry(peer.key()).or_default().push(peer.address());
        }
        let mut all: Vec<_> = by_key.into_iter().map(|(key, from)| Connected { key, from }).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.from.len()));
        all
    }

    /// Returns a page of the acceptor's councils, as of its last commit. The writer serves one such query at a time
    /// and reads nothing from the disk for it.
    pub async fn councils(&self, wish: Wish) -> Result<Councils, Stopped> {
        self.look.councils(wish).await
    }
}

impl fmt::Debug for Lookout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookout").field("key", &self.key).field("life", &self.life).finish_non_exhaustive()
    }
}
