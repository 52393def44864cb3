//! What a device does, as metrics.

use std::collections::{BTreeMap, HashMap};

use holdoff_paxos::Slot;

use super::clock::{self, Instant};
use crate::{Applied, Ask, Counts, OperationId, Outcome, metrics};

/// What is under way, for how long.
#[derive(Default)]
pub(super) struct Measure {
    counts: Counts,
    /// When this device began to propose something for a slot.
    began: BTreeMap<Slot, Instant>,
    submitted: HashMap<OperationId, Instant>,
}

impl Measure {
    pub(super) fn submitted(&mut self, id: OperationId) {
        self.submitted.entry(id).or_insert_with(clock::now);
    }

    pub(super) fn asked(&mut self, ask: &Ask) {
        if let Ask::Prepare { slot, .. } | Ask::Accept { slot, .. } = ask {
            self.began.entry(*slot).or_insert_with(clock::now);
        }
    }

    pub(super) fn applied(&mut self, applied: &Applied, is_own: bool) {
        let later = self.began.split_off(&applied.slot.next());
        let began = std::mem::replace(&mut self.began, later).remove(&applied.slot);
        if is_own && let Some(began) = began {
            metrics::slot_took(clock::now().saturating_duration_since(began));
            metrics::batch(applied.operations.len());
        }
    }

    pub(super) fn ended(&mut self, id: OperationId, outcome: &Outcome) {
        let took = self.submitted.remove(&id).map(|at| clock::now().saturating_duration_since(at));
        metrics::ended(outcome, took);
    }

    /// What has happened since the last time.
    pub(super) fn counted(&mut self, counts: &Counts) {
        metrics::counted(&self.counts, counts);
        self.counts = *counts;
    }
}
