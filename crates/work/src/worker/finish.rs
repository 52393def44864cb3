//! Writes reports to the store, in batches that grow with the load.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::Shared;
use super::hold::{Hold, Slot};
use crate::names::KnownLane;
use crate::patience::patiently;
use crate::store::{Receipt, Report};

/// The maximum number of reports in one batch.
const BATCH: usize = 1000;

/// A step that has ended, with its slot. The slot becomes free when the report is durable.
pub(super) struct Done {
    pub(super) hold: Arc<Hold>,
    pub(super) slot: Slot,
    pub(super) report: Option<Report>,
    pub(super) lane: Arc<KnownLane>,
    pub(super) place: OwnedSemaphorePermit,
}

pub(super) type Reports = mpsc::Sender<Done>;

/// Creates the channel for reports. Its capacity is the number of slots, so that a step never waits to send its
/// report.
pub(super) fn channel(places: usize) -> (Reports, mpsc::Receiver<Done>) {
    mpsc::channel(places)
}

/// Writes reports until all senders are gone.
pub(super) async fn finish(shared: Arc<Shared>, mut inbox: mpsc::Receiver<Done>) {
    let mut batch = Vec::with_capacity(BATCH);
    while inbox.recv_many(&mut batch, BATCH).await > 0 {
        flush(&shared, &mut batch).await;
    }
}

async fn flush(shared: &Shared, batch: &mut Vec<Done>) {
    let work = &shared.work.shared;
    let mut reports = Vec::with_capacity(batch.len());
    let mut lanes = Vec::with_capacity(batch.len());
    let mut slots = Vec::with_capacity(batch.len());
    let mut places: Option<OwnedSemaphorePermit> = None;
    for Done { hold, slot, report, lane, place } in batch.drain(..) {
        hold.is_ending();
        slots.push(slot);
        match &mut places {
            Some(places) => places.merge(place),
            None => places = Some(place),
        }
        if let Some(report) = report {
            reports.push(report);
            lanes.push(lane);
        }
    }
    if !reports.is_empty() {
        let tell = |ended: &crate::store::Ended| shared.herald.tell(&work.names, ended);
        match patiently(&work.reports, |_| work.store.finish(&reports, &tell)).await {
            Ok(receipts) => count(shared, &reports, &lanes, &receipts),
            // A further attempt would not help; the steps are rescued when their leases expire.
            Err(error) => tracing::error!(%error, "reports could not be written"),
        }
    }
    shared.held.remove(slots.into_iter());
    drop(places);
}

fn count(shared: &Shared, reports: &[Report], lanes: &[Arc<KnownLane>], receipts: &[Receipt]) {
    let all = reports.iter().zip(lanes).zip(receipts);
    let accepted = all.filter(|(_, receipt)| **receipt == Receipt::Accepted);
    shared.work.note_finished(accepted.map(|((report, lane), _)| (&lane.lane, report)));
    for ((report, lane), receipt) in reports.iter().zip(lanes).zip(receipts) {
        if *receipt == Receipt::Accepted {
            super::count(&lane.metrics, std::slice::from_ref(report));
        } else {
            lane.metrics.fenced();
            tracing::debug!(step = %report.step, lease = report.lease, ?receipt, "a report came too late");
        }
    }
}
