//! The connected peers and the limits on their number.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{Peer, PeerId};
use crate::metrics::{self, Open, Side};
use crate::{PublicKey, Refusal, ServerOptions};

#[derive(Debug)]
pub(super) struct Guests {
    most: usize,
    most_with_key: usize,
    inside: Mutex<Inside>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inside {
    seats: usize,
    by_key: HashMap<PublicKey, usize>,
    peers: BTreeMap<PeerId, Peer>,
    next: u64,
}

/// The permit for one connection; released when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    guests: Arc<Guests>,
    key: PublicKey,
    id: PeerId,
    _open: Open,
}

impl Guests {
    pub(super) fn new(options: &ServerOptions) -> Self {
        let (most, most_with_key) = (options.max_connections, options.max_connections_with_key);
        Self { most, most_with_key, inside: Mutex::default(), changed: Notify::new() }
    }

    /// Takes a permit for this key, if the limits allow it.
    pub(super) fn seat(self: &Arc<Self>, key: PublicKey) -> Result<Seat, Refusal> {
        let mut inside = self.inside();
        if inside.seats >= self.most {
            return Err(Refusal::TooManyConnections);
        }
        let most_with_key = self.most_with_key;
        let with_key = inside.by_key.entry(key).or_default();
        if *with_key >= most_with_key {
            return Err(Refusal::TooManyWithKey);
        }
        *with_key += 1;
        inside.seats += 1;
        inside.next += 1;
        let id = PeerId(inside.next);
        drop(inside);
        Ok(Seat { guests: self.clone(), key, id, _open: metrics::opened(Side::Server) })
    }

    /// Returns the connected peers, in the order in which they connected.
    pub(super) fn all(&self) -> Vec<Peer> {
        self.inside().peers.values().cloned().collect()
    }

    /// Waits until no connection is left.
    pub(super) async fn empty(&self) {
        loop {
            let changed = self.changed.notified();
            if self.inside().seats == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Every critical section leaves consistent data, so a poisoned lock is safe to use.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    pub(super) fn id(&self) -> PeerId {
        self.id
    }

    /// Registers the peer as connected.
    pub(super) fn taken_by(&self, peer: &Peer) {
        self.guests.inside().peers.insert(self.id, peer.clone());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inside = self.guests.inside();
        inside.seats = inside.seats.saturating_sub(1);
        inside.peers.remove(&self.id);
        if let Some(with_key) = inside.by_key.get_mut(&self.key) {
            *with_key = with_key.saturating_sub(1);
            if *with_key == 0 {
                inside.by_key.remove(&self.key);
            }
        }
        drop(inside);
        self.guests.changed.notify_waiters();
    }
}
