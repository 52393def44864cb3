//! The versions that we wrote last of locks which this process has, to renew and let go with one request.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::entry::Entry;

/// So many are kept; beyond, each renewal reads first.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Written(Mutex<HashMap<[u8; 32], Entry>>);

impl Written {
    /// Keeps what was written, if somebody has it.
    pub(super) fn keep(&self, entry: Entry) {
        let (Some(digest), Some(_)) = (entry.digest(), entry.owner()) else { return };
        let mut map = self.map();
        // Some of those that were lost may never be asked for again.
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
