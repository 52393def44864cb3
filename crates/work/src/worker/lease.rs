//! The steps that a worker holds, and the renewal of their leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdoff_policy::as_micros_u64;
use parking_lot::Mutex;
use slab::Slab;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::registration::REPORT_EVERY;
use crate::with_retry::within;
use crate::{StepId, clock};

/// A step that a worker holds. The handler, the report and the lease renewal share it.
#[derive(Debug)]
pub(crate) struct StepLease {
    pub(crate) step: StepId,
    pub(crate) lease: i64,
    /// The last time at which the lease was known to be valid, in microseconds. It is taken before the request to the
    /// store, so that the worker does not overestimate the lease.
    since: AtomicU64,
    pub(crate) lost: CancellationToken,
    /// Whether the report is being written. A renewal that the store then rejects does not mean that the lease is lost.
    is_ending: AtomicBool,
}

impl StepLease {
    pub(crate) fn new(step: StepId, lease: i64, since: Duration) -> Arc<Self> {
        let (lost, is_ending) = (CancellationToken::new(), AtomicBool::new(false));
        Arc::new(Self { step, lease, since: AtomicU64::new(as_micros_u64(since)), lost, is_ending })
    }

    pub(super) fn set_ending(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    fn renewed(&self, since: Duration) {
        self.since.store(as_micros_u64(since), Ordering::Relaxed);
    }

    fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_micros(self.since.load(Ordering::Relaxed)))
    }

    fn is_running(&self) -> bool {
        !self.lost.is_cancelled() && !self.is_ending.load(Ordering::Relaxed)
    }

    fn mark_lost(&self, why: &'static str) {
        if self.is_running() {
            tracing::warn!(step = %self.step, lease = self.lease, "stopped a step: {why}");
            self.lost.cancel();
        }
    }
}

/// All steps that a worker holds. A worker may claim a step again before its own previous run of that step has ended.
#[derive(Debug, Default)]
pub(super) struct HeldLeases(Mutex<Slab<Arc<StepLease>>>);

/// The index of a step in `HeldLeases`.
pub(super) type LeaseSlot = usize;

impl HeldLeases {
    pub(super) fn insert(&self, lease: Arc<StepLease>) -> LeaseSlot {
        self.0.lock().insert(lease)
    }

    pub(super) fn remove(&self, slots: impl Iterator<Item = LeaseSlot>) {
        let mut all = self.0.lock();
        slots.for_each(|slot| drop(all.try_remove(slot)));
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns the time since the earliest of the last renewals, of the steps that run.
    fn oldest(&self) -> Option<Duration> {
        let now = clock::now();
        let all = self.0.lock();
        all.iter().filter(|(_, held)| held.is_running()).map(|(_, held)| held.age(now)).max()
    }

    /// Returns the steps whose leases were not renewed for at least this long.
    fn older_than(&self, age: Duration) -> Vec<Arc<StepLease>> {
        let now = clock::now();
        let all = self.0.lock();
        let mut old: Vec<_> = all
            .iter()
            .filter(|(_, lease)| lease.age(now) >= age)
            .map(|(_, lease)| Arc::clone(lease))
            .collect();
        drop(all);
        // All writers use the same order of rows, so that two writers of the same rows cannot deadlock.
        old.sort_unstable_by_key(|lease| (lease.step, lease.lease));
        old
    }
}

/// The longest time between two looks at the leases. A claim that took long may start a run under a lease that ends soon.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Stops steps whose leases have ended, until the worker stops. Another worker may hold these steps by now. A renewal
/// that hangs does not delay it, because it calls nothing.
pub(super) async fn expire(shared: Arc<Shared>) {
    let lease = shared.work.shared.settings.lease;
    loop {
        let left = shared.leases.oldest().map_or(LOOK_EVERY, |age| lease.saturating_sub(age));
        tokio::select! {
            () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
            () = shared.stopped.cancelled() => return,
        }
        for held in shared.leases.older_than(lease) {
            held.mark_lost("its lease was not renewed in time");
        }
    }
}

/// Renews leases at a third of their length, until the worker stops.
pub(super) async fn renew(shared: Arc<Shared>) {
    let lease = shared.work.shared.settings.lease;
    let third = lease / 3;
    loop {
        tokio::select! {
            () = tokio::time::sleep((third / 4).min(REPORT_EVERY)) => {}
            () = shared.stopped.cancelled() => return,
        }
        let old = shared.leases.older_than(third);
        if !old.is_empty() {
            let before = clock::now();
            let leases: Vec<_> = old.iter().map(|lease| (lease.step, lease.lease)).collect();
            match within(third, shared.work.shared.store.renew(&leases, lease)).await {
                Ok(still) => apply_renewals(&old, &still, before),
                Err(error) => {
                    tracing::warn!(%error, "failed to renew leases; the next round renews them again");
                }
            }
        }
        // Leases are renewed first. The timeout prevents a slow response to this report from delaying the next
        // renewal.
        let _ = tokio::time::timeout(third / 4, shared.registration.report_alive(&*shared.work.shared.store))
            .await;
    }
}

fn apply_renewals(old: &[Arc<StepLease>], still: &[bool], since: Duration) {
    for (held, still) in old.iter().zip(still) {
        if *still {
            held.renewed(since);
        } else {
            held.mark_lost("its lease was lost");
        }
    }
}
