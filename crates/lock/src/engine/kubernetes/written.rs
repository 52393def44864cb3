//! The last written versions of locks that this process holds. With them, a renewal or release takes one request.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::entry::Entry;

/// The maximum number of entries. Beyond it, each renewal reads first.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Written(Mutex<HashMap<[u8; 32], Entry>>);

impl Written {
    /// Stores a written version if the lock is held.
    pub(super) fn keep(&self, entry: Entry) {
        let (Some(digest), Some(_)) = (entry.digest(), entry.owner()) else { return };
        let mut map = self.map();
        // Entries of lost locks may never be used again.
        if map.len() >= MOST && !map.contains_key(&digest) {
            map.clear();
        }
        map.insert(digest, entry);
    }

    pub(super) fn take(&self, digest: &[u8; 32]) -> Option<Entry> {
        self.map().remove(digest)
    }

    fn map(&self) -> MutexGuard<'_, HashMap<[u8; 32], Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
