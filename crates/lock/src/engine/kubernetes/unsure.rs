//! Calls whose responses were lost, with the versions they were made from, so that they can be invalidated.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Nonce;

/// The maximum number of entries. Each is settled when its nonce is read back or withdrawn, so more are never needed.
const MOST: usize = 10_000;

type Version = (String, String);

#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<HashMap<Nonce, Version>>);

impl Unsure {
    /// Records that a write for this nonce is about to be made from this version. An earlier write from another version
    /// can no longer take effect: that version is not the newest any more.
    pub(super) fn note(&self, nonce: Nonce, version: Version) {
        let mut map = self.map();
        if map.len() >= MOST && !map.contains_key(&nonce) {
            tracing::warn!("more than {MOST} calls to Kubernetes whose answers were lost: forgetting them");
            map.clear();
        }
        map.insert(nonce, version);
    }

    /// Removes a call whose outcome is known.
    pub(super) fn settle(&self, nonce: Nonce) {
        self.map().remove(&nonce);
    }

    /// Removes the call unless it was made from the newest version: a write from another version cannot take effect.
    pub(super) fn settle_unless(&self, nonce: Nonce, newest: &Version) {
        let mut map = self.map();
        if map.get(&nonce).is_some_and(|version| version != newest) {
            map.remove(&nonce);
        }
    }

    pub(super) fn version(&self, nonce: Nonce) -> Option<Version> {
        self.map().get(&nonce).cloned()
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Nonce, Version>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
