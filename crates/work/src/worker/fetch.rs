//! Claims steps for free slots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Attempt, Failure, SoFar};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::finish::Reports;
use super::{Shared, run};
use crate::names::KnownLane;
use crate::patience::patiently;
use crate::store::{Claimed, LaneId, Result};
use crate::{Payload, StepId, clock};

/// The maximum number of steps in one claim.
const BATCH: usize = 1000;

/// The time that a fetch waits for more free slots when there are few. A whole batch costs hardly more than one step.
const LINGER: Duration = Duration::from_millis(2);

pub(super) async fn fetch(shared: Arc<Shared>, reports: Reports) {
    let places = Arc::new(Semaphore::new(shared.concurrency));
    let mut wakes = shared.work.shared.store.wakes();
    let mut failures = 0_u32;
    while let Some(mut free) = free_places(&shared, &places).await {
        wakes.mark_unchanged();
        let wanted = free.num_permits();
        match claim(&shared, wanted, &mut free, &reports).await {
            // Other lanes may have more due steps.
            Ok(claimed) if claimed > 0 => failures = 0,
            Ok(_) => {
                failures = 0;
                drop(free);
                tokio::select! {
                    _ = wakes.changed() => {}
                    () = tokio::time::sleep(shared.work.shared.settings.poll) => {}
                    () = shared.stopping.cancelled() => return,
                }
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%error, failures, "no steps could be claimed");
                drop(free);
                let so_far = SoFar { attempt: Attempt::new(failures), ..SoFar::default() };
                let decision =
                    shared.work.shared.reports.decide(&so_far, &Failure::transient(), clock::roll());
                tokio::select! {
                    () = tokio::time::sleep(decision.delay().unwrap_or(LINGER)) => {}
                    () = shared.stopping.cancelled() => return,
                }
            }
        }
    }
}

/// Waits for a free slot and returns all free slots, at most `BATCH`. Returns `None` when the worker stops.
async fn free_places(shared: &Shared, places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let first = tokio::select! {
        first = Arc::clone(places).acquire_owned() => first.ok()?,
        () = shared.stopping.cancelled() => return None,
    };
    if places.available_permits() < shared.concurrency.min(BATCH) / 4 {
        tokio::time::sleep(LINGER).await;
    }
    if shared.stopping.is_cancelled() {
        return None;
    }
    let mut free = first;
    let more = u32::try_from(places.available_permits().min(BATCH - 1)).unwrap_or(0);
    if let Ok(more) = Arc::clone(places).try_acquire_many_owned(more) {
        free.merge(more);
    }
    Some(free)
}

async fn claim(
    shared: &Arc<Shared>,
    wanted: usize,
    free: &mut OwnedSemaphorePermit,
    reports: &Reports,
) -> Result<usize> {
    let work = &shared.work.shared;
    let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
    let since = clock::now();
    let claimed = work.store.claim(&shared.wants, shared.presence.id, limit, work.settings.lease).await?;
    let count = claimed.len();
    let mut inputs = inputs(shared, &claimed).await?;
    let mut known: Option<(LaneId, Arc<KnownLane>)> = None;
    for claimed in claimed {
        // Most steps of one claim are in the same lane.
        let lane = match &known {
            Some((id, lane)) if *id == claimed.lane => Arc::clone(lane),
            _ => patiently(&work.callers, |_| work.names.lane(&*work.store, claimed.lane)).await?,
        };
        known = Some((claimed.lane, Arc::clone(&lane)));
        let inputs = inputs.remove(&claimed.step).map(Arc::new);
        let Some(place) = free.split(1) else { break };
        run::start(shared, claimed, lane, inputs, since, place, reports.clone());
    }
    Ok(count)
}

/// Reads the outputs of the parents, for the steps that have parents.
async fn inputs(shared: &Shared, claimed: &[Claimed]) -> Result<BTreeMap<StepId, BTreeMap<String, Payload>>> {
    let mut inputs: BTreeMap<StepId, BTreeMap<String, Payload>> = BTreeMap::new();
    let children: Vec<StepId> =
        claimed.iter().filter(|claimed| claimed.has_parents).map(|claimed| claimed.step).collect();
    if !children.is_empty() {
        let work = &shared.work.shared;
        for (step, parent, output) in patiently(&work.callers, |_| work.store.inputs(&children)).await? {
            inputs.entry(step).or_default().insert(parent, output);
        }
    }
    Ok(inputs)
}
