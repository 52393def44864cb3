//! What people can see of an acceptor.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use holdoff_net::Peer;

use super::writer::Look;
use super::{Councils, Figures, Limits, Stopped, Wish};
use crate::{NodeId, PublicKey, node_id};

/// What people can see of an acceptor. Whoever keeps this does not keep it running.
pub struct Lookout {
    key: PublicKey,
    address: SocketAddr,
    life: u64,
    limits: Limits,
    look: Look<Peer>,
    crowd: Box<dyn Fn() -> Vec<Peer> + Send + Sync>,
}

/// Whoever is connected with one key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Connected {
    /// Who it is.
    pub key: PublicKey,
    /// From where, each connection.
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

    /// Its key.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The life of its storage.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Who it is in configurations: its key and its life.
    pub fn node(&self) -> NodeId {
        node_id(&self.key, self.life)
    }

    /// How much it takes on.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Why it has stopped answering, if it has: its disk has failed.
    pub fn stopped(&self) -> Option<String> {
        self.look.stopped()
    }

    /// What it has counted.
    pub fn figures(&self) -> Figures {
        self.look.figures()
    }

    /// Who is connected: those with the most connections first.
    pub fn connected(&self) -> Vec<Connected> {
        let mut by_key: BTreeMap<PublicKey, Vec<SocketAddr>> = BTreeMap::new();
        for peer in (self.crowd)() {
            by_key.entry(peer.key()).or_default().push(peer.address());
        }
        let mut all: Vec<_> = by_key.into_iter().map(|(key, from)| Connected { key, from }).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.from.len()));
        all
    }

    /// A page of the councils that it keeps, as of its last commit. The writer is asked for it: one look at a time,
    /// which reads nothing from the disk.
    pub async fn councils(&self, wish: Wish) -> Result<Councils, Stopped> {
        self.look.councils(wish).await
    }
}

impl fmt::Debug for Lookout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookout").field("key", &self.key).field("life", &self.life).finish_non_exhaustive()
    }
}
