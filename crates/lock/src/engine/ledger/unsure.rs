//! Bids whose outcome is not known: they are asked for again, under the same name, before anything else is done with
//! their nonce.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdoff_ledger::TxId;
use holdoff_ledger::machine::Commands;

use crate::Nonce;

/// So many are remembered. Each is settled when its nonce bids again, is asked about or withdrawn, so that more are never
/// needed.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<HashMap<Nonce, (TxId, Commands)>>);

impl Unsure {
    /// A transaction for this nonce is about to be submitted. Whoever stops waiting for it leaves it here.
    pub(super) fn note(&self, nonce: Nonce, tx_id: TxId, commands: &Commands) {
        let mut map = self.map();
        if map.len() >= MOST && !map.contains_key(&nonce) {
            tracing::warn!("more than {MOST} bids whose outcome is not known: forgetting them");
            map.clear();
        }
        map.insert(nonce, (tx_id, commands.clone()));
    }

    /// What became of it is known.
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
