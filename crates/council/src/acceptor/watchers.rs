//! Who is told what is accepted.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use super::Limits;
use crate::{CouncilId, metrics};

/// A connection that can be told something without being asked.
pub trait Watcher: fmt::Debug + Send + 'static {
    /// Tells one connection from another.
    type Id: Copy + Eq + Hash + fmt::Debug + Send;

    /// Which connection this is.
    fn id(&self) -> Self::Id;

    /// Tells it something, without waiting. Whoever is too slow misses it, and is told that it has.
    ///
    /// Returns whether the connection is still there.
    fn push(&self, message: &[u8]) -> bool;
}

/// The watchers of every council.
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

    /// A connection is there, and may watch.
    pub(super) fn joined(&mut self, id: W::Id) {
        self.watching.entry(id).or_default();
    }

    /// Somebody watches a council from now on. Beyond the limits it does not, and has to ask again and again.
    pub(super) fn add(&mut self, council: CouncilId, watcher: W) {
        // Who has asked and gone before its turn came is not here.
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

    /// A connection is gone.
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

    /// Tells everybody who watches a council, but one.
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
