//! The councils in use: a cache of [`Seat`]s.

use std::collections::{BTreeMap, HashMap};

use super::{Limits, Store, StoreError};
use crate::{CouncilId, Seat, metrics};

/// The seats by council. The acceptor reads a seat from the disk at the first request and evicts it when memory is
/// short.
#[derive(Debug)]
pub(super) struct Seats {
    limits: Limits,
    by_council: HashMap<CouncilId, Place>,
    /// The councils by their last use, least recently used first.
    by_use: BTreeMap<u64, CouncilId>,
    uses: u64,
    memory: usize,
}

#[derive(Debug)]
struct Place {
    seat: Seat,
    used: u64,
    memory: usize,
}

impl Seats {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, by_council: HashMap::new(), by_use: BTreeMap::new(), uses: 0, memory: 0 }
    }

    /// Runs a function on the seat of a council.
    pub(super) fn using<T>(
        &mut self,
        council: CouncilId,
        store: &Store,
        act: impl FnOnce(&mut Seat) -> T,
    ) -> Result<T, StoreError> {
        self.uses += 1;
        let mut place = match self.by_council.remove(&council) {
            Some(place) => place,
            None => Place { seat: self.load(council, store)?, used: 0, memory: 0 },
        };
        let done = act(&mut place.seat);
        self.by_use.remove(&place.used);
        self.by_use.insert(self.uses, council);
        place.used = self.uses;
        self.memory -= place.memory;
        place.memory = place.seat.memory();
        self.memory += place.memory;
        self.by_council.insert(council, place);
        Ok(done)
    }

    fn load(&self, council: CouncilId, store: &Store) -> Result<Seat, StoreError> {
        let mut seat = Seat::new(council, self.limits.council);
        for stored in store.load(council)? {
            seat.restore(stored);
        }
        metrics::loaded();
        Ok(seat)
    }

    /// Evicts the least recently used seats until the rest fits into memory. Only data that is on disk may be
    /// evicted, so the caller must have no records left to write.
    pub(super) fn make_room(&mut self) {
        while self.memory > self.limits.memory_bytes {
            let Some((_, longest_ago)) = self.by_use.pop_first() else { return };
            if let Some(place) = self.by_council.remove(&longest_ago) {
                self.memory -= place.memory;
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }
}
