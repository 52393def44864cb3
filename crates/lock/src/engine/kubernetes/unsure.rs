//! Calls whose answers were lost: which version they were made from, so that they can be outrun.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Nonce;

/// So many are remembered. Each is settled when its nonce is asked about or withdrawn, so that more are never needed.
const MOST: usize = 10_000;

type Version = (String, String);

#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<HashMap<Nonce, Version>>);

impl Unsure {
    /// A write for this nonce is about to be made from this version. An earlier one from another version is dead: the
    /// newest version is not that one any more.
    pub(super) fn note(&self, nonce: Nonce, version: Version) {
        let mut map = self.map();
        if map.len() >= MOST && !map.contains_key(&nonce) {
            tracing::warn!("more than {MOST} calls to Kubernetes whose answers were lost: forgetting them");
            map.clear();
        }
        map.insert(nonce, version);
    }

    /// What became of it is known.
    pub(super) fn settle(&self, nonce: Nonce) {
        self.map().remove(&nonce);
    }

    /// The newest version is this: a write from another one can arrive no more.
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
