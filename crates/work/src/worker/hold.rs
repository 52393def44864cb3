//! The steps a worker has, and keeping them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::{StepId, clock};

/// Steps that this worker has, by their leases: it may get one again whose last run it has not ended yet.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<(StepId, i64), Hold>>);

#[derive(Debug)]
struct Hold {
    /// When the lease was last known to be good, before the store was asked.
    since: Duration,
    lost: CancellationToken,
    /// Whether its report is being written: that the store knows the lease no more is then no bad news.
    is_ending: bool,
}

impl Held {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<(StepId, i64), Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, step: StepId, lease: i64, since: Duration, lost: CancellationToken) {
        self.map().insert((step, lease), Hold { since, lost, is_ending: false });
    }

    pub(super) fn ending(&self, held: &[(StepId, i64)]) {
        let mut map = self.map();
        for hold in held {
            if let Some(hold) = map.get_mut(hold) {
                hold.is_ending = true;
            }
        }
    }

    pub(super) fn remove(&self, held: impl Iterator<Item = (StepId, i64)>) {
        let mut map = self.map();
        for hold in held {
            map.remove(&hold);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.map().len()
    }

    /// Those that were not renewed for so long.
    fn older_than(&self, age: Duration) -> Vec<(StepId, i64)> {
        let now = clock::now();
        let is_old = |hold: &Hold| now.saturating_sub(hold.since) >= age;
        let map = self.map();
        let mut held: Vec<_> = map.iter().filter(|(_, hold)| is_old(hold)).map(|(held, _)| *held).collect();
        // In everybody's order, so that two who write the same rows do not wait for each other.
        held.sort_unstable();
        held
    }

    fn renewed(&self, held: &[(StepId, i64)], still: &[bool], since: Duration) {
        let mut map = self.map();
        for (held, still) in held.iter().zip(still) {
            let ((step, lease), Some(hold)) = (*held, map.get_mut(held)) else { continue };
            if *still {
                hold.since = since;
            } else if !hold.is_ending {
                tracing::warn!(%step, lease, "the lease is lost: the step is stopped");
                hold.lost.cancel();
            }
        }
    }

    /// Stops what may belong to somebody else by now.
    fn stop_expired(&self, lease: Duration) {
        let now = clock::now();
        for ((step, _), hold) in self.map().iter().filter(|(_, hold)| now.saturating_sub(hold.since) >= lease)
        {
            if !hold.lost.is_cancelled() && !hold.is_ending {
                tracing::warn!(%step, "the lease could not be renewed in time: the step is stopped");
                hold.lost.cancel();
            }
        }
    }
}

/// Renews leases at a third of their length, as long as there is anything to renew.
pub(super) async fn renew(shared: Arc<Shared>) {
    let lease = shared.work.shared.settings.lease;
    let third = lease / 3;
    loop {
        tokio::select! {
            () = tokio::time::sleep(third / 4) => {}
            () = shared.stopped.cancelled() => return,
        }
        let held = shared.held.older_than(third);
        if !held.is_empty() {
            let before = clock::now();
            match shared.work.shared.store.renew(&held, lease).await {
                Ok(still) => shared.held.renewed(&held, &still, before),
                Err(error) => tracing::warn!(%error, "leases could not be renewed; it is tried again"),
            }
        }
        shared.held.stop_expired(lease);
    }
}
