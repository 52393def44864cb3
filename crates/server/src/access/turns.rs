//! Serializes token lookups for each address. Addresses are hashed onto a fixed number of locks, which bounds memory.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use tokio::sync::Mutex;

const LOCKS: usize = 64;

pub(super) struct Turns {
    locks: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { locks: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }
}

impl Turns {
    pub(super) fn of(&self, address: &IpAddr) -> &Mutex<()> {
        let [first, ..] = &self.locks;
        let place = self.hasher.hash_one(address) % LOCKS as u64;
        usize::try_from(place).ok().and_then(|place| self.locks.get(place)).unwrap_or(first)
    }
}
