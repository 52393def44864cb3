//! Bids with an unknown outcome. They are submitted again under the same id before any other operation for their nonce.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdoff_ledger::TxId;
use holdoff_ledger::machine::Commands;

use crate::Nonce;

/// The maximum number of entries. Each is settled when its nonce bids again, is read back or is withdrawn, so more are
/// never needed.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<HashMap<Nonce, (TxId, Commands)>>);

impl Unsure {
    /// Records that a transaction for this nonce is about to be submitted. If its caller stops waiting, the entry
    /// remains.
    pub(super) fn note(&self, nonce: Nonce, tx_id: TxId, commands: &Commands) {
        let mut map = self.map();
        if map.len() >= MOST && !map.contains_key(&nonce) {
            tracing::warn!("more than {MOST} bids whose outcome is not known: forgetting them");
            map.clear();
        }
        map.insert(nonce, (tx_id, commands.clone()));
    }

    /// Removes a transaction whose outcome is known.
    pub(super) fn settle(&self, nonce: Nonce) {
        self.map().remove(&nonce);
    }

    pub(super) fn get(&self, nonce: Nonce) -> Option<(TxId, Commands)> {
        self.map().get(&nonce).cloned()
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Nonce, (TxId, Commands)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
