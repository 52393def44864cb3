//! Records the metrics of a device.

use std::collections::{BTreeMap, HashMap};

use holdoff_paxos::Slot;

use super::clock::{self, Instant};
use crate::{AcceptorRequest, Applied, DeviceCounters, OperationId, Outcome, metrics};

/// The start times of pending slots and operations, and the last recorded counters.
#[derive(Default)]
pub(super) struct MetricsRecorder {
    counts: DeviceCounters,
    /// The time at which this device sent its first request for each slot.
    began: BTreeMap<Slot, Instant>,
    submitted: HashMap<OperationId, Instant>,
}

impl MetricsRecorder {
    pub(super) fn submitted(&mut self, id: OperationId) {
        self.submitted.entry(id).or_insert_with(clock::now);
    }

    pub(super) fn requested(&mut self, request: &AcceptorRequest) {
        if let AcceptorRequest::Prepare { slot, .. } | AcceptorRequest::Accept { slot, .. } = request {
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

    /// Records the increase of the counters since the last call.
    pub(super) fn counted(&mut self, counts: &DeviceCounters) {
        metrics::counted(&self.counts, counts);
        self.counts = *counts;
    }
}
