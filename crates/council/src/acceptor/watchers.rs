//! The connections that watch councils for accepted values.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use super::Limits;
use crate::{CouncilId, metrics};

/// A connection to which the acceptor can push messages.
pub trait Watcher: fmt::Debug + Send + 'static {
    /// The id of a connection.
    type Id: Copy + Eq + Hash + fmt::Debug + Send;

    /// Returns the id of this connection.
    fn id(&self) -> Self::Id;

    /// Pushes a message without waiting. A connection that reads too slowly misses the message and learns that it
    /// has missed one.
    ///
    /// Returns whether the connection is still open.
    fn push(&self, message: &[u8]) -> bool;
}

/// The watchers of all councils.
#[derive(Debug)]
pub(super) struct Watchers<W: Watcher> {
    limits: Limits,
    by_council: HashMap<CouncilId, Vec<W>>,
    watching: HashMap<W::Id, Vec<CouncilId>>,
    count: usize,
}

impl<W: Watcher> Watchers<W> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, by_council: HashMap::new(), watching: HashMap::new(), count: 0 }
    }

    /// Registers a connection, which may watch from now on.
    pub(super) fn joined(&mut self, id: W::Id) {
        self.watching.entry(id).or_default();
    }

    /// Adds a watcher to a council. Beyond the limits the connection is not added, and must poll instead.
    pub(super) fn add(&mut self, council: CouncilId, watcher: W) {
        // The connection may have closed before the writer processed its request.
        let Some(watched) = self.watching.get_mut(&watcher.id()) else { return };
        let watchers = self.by_council.get(&council).map(Vec::as_slice).unwrap_or_default();
        let is_known = watchers.iter().any(|known| known.id() == watcher.id());
        if !is_known && watchers.len() < self.limits.watchers && watched.len() < self.limits.watched {
            watched.push(council);
            self.by_council.entry(council).or_default().push(watcher);
            self.count += 1;
            metrics::watched(self.count);
        }
    }

    /// Removes a closed connection.
    pub(super) fn remove(&mut self, id: W::Id) {
        for council in self.watching.remove(&id).unwrap_or_default() {
            if let Some(watchers) = self.by_council.get_mut(&council) {
                let before = watchers.len();
                watchers.retain(|watcher| watcher.id() != id);
                self.count -= before - watchers.len();
                if watchers.is_empty() {
                    self.by_council.remove(&council);
                }
            }
        }
        metrics::watched(self.count);
    }

    /// Pushes a message to all watchers of a council except one.
    pub(super) fn push(&mut self, council: CouncilId, but: Option<W::Id>, message: &[u8]) {
        let watchers = self.by_council.get(&council).map(Vec::as_slice).unwrap_or_default();
        let others = watchers.iter().filter(|watcher| Some(watcher.id()) != but);
        let gone: Vec<_> = others.filter(|watcher| !watcher.push(message)).map(Watcher::id).collect();
        for id in gone {
            self.remove(id);
        }
    }

    pub(super) fn of(&self, council: CouncilId) -> usize {
        self.by_council.get(&council).map_or(0, Vec::len)
    }
}
