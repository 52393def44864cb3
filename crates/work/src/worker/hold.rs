//! The steps that a worker holds, and the renewal of their leases.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slab::Slab;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::presence::SAY_EVERY;
use crate::{StepId, clock};

/// A step that a worker holds. The handler, the report and the lease renewal share it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) step: StepId,
    pub(crate) lease: i64,
    /// The last time at which the lease was known to be valid, in microseconds. It is taken before the request to the
    /// store, so that the worker does not overestimate the lease.
    since: AtomicU64,
    pub(crate) lost: CancellationToken,
    /// Whether the report is being written. A renewal that the store then rejects does not mean that the lease is lost.
    is_ending: AtomicBool,
}

impl Hold {
    pub(crate) fn new(step: StepId, lease: i64, since: Duration) -> Arc<Self> {
        let (lost, is_ending) = (CancellationToken::new(), AtomicBool::new(false));
        Arc::new(Self { step, lease, since: AtomicU64::new(micros(since)), lost, is_ending })
    }

    pub(super) fn is_ending(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    fn renewed(&self, since: Duration) {
        self.since.store(micros(since), Ordering::Relaxed);
    }

    fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_micros(self.since.load(Ordering::Relaxed)))
    }

    fn lose(&self, why: &'static str) {
        if !self.lost.is_cancelled() && !self.is_ending.load(Ordering::Relaxed) {
            tracing::warn!(step = %self.step, lease = self.lease, "{why}: the step is stopped");
            self.lost.cancel();
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// All steps that a worker holds. A worker may claim a step again before its own previous run of that step has ended.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Slab<Arc<Hold>>>);

/// The index of a step in `Held`.
pub(super) type Slot = usize;

impl Held {
    fn all(&self) -> std::sync::MutexGuard<'_, Slab<Arc<Hold>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, hold: Arc<Hold>) -> Slot {
        self.all().insert(hold)
    }

    pub(super) fn remove(&self, slots: impl Iterator<Item = Slot>) {
        let mut all = self.all();
        slots.for_each(|slot| drop(all.try_remove(slot)));
    }

    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    /// Returns the steps whose leases were not renewed for at least this long.
    fn older_than(&self, age: Duration) -> Vec<Arc<Hold>> {
        let now = clock::now();
        let all = self.all();
        let mut old: Vec<_> =
            all.iter().filter(|(_, hold)| hold.age(now) >= age).map(|(_, hold)| Arc::clone(hold)).collect();
        drop(all);
        // All writers use the same order of rows, so that two writers of the same rows cannot deadlock.
        old.sort_unstable_by_key(|hold| (hold.step, hold.lease));
        old
    }
}

/// Renews leases at a third of their length, until the worker stops.
pub(super) async fn renew(shared: Arc<Shared>) {
    let lease = shared.work.shared.settings.lease;
    let third = lease / 3;
    loop {
        tokio::select! {
            () = tokio::time::sleep((third / 4).min(SAY_EVERY)) => {}
            () = shared.stopped.cancelled() => return,
        }
        let old = shared.held.older_than(third);
        if !old.is_empty() {
            let before = clock::now();
            let leases: Vec<_> = old.iter().map(|hold| (hold.step, hold.lease)).collect();
            match shared.work.shared.store.renew(&leases, lease).await {
                Ok(still) => note(&old, &still, before),
                Err(error) => tracing::warn!(%error, "leases could not be renewed; it is tried again"),
            }
        }
        // Another worker may hold these steps by now.
        for hold in shared.held.older_than(lease) {
            hold.lose("the lease could not be renewed in time");
        }
        // Leases are renewed first. The timeout prevents a slow response to this report from delaying the next
        // renewal.
        let _ = tokio::time::timeout(third / 4, shared.presence.say(&*shared.work.shared.store)).await;
    }
}

fn note(old: &[Arc<Hold>], still: &[bool], since: Duration) {
    for (hold, still) in old.iter().zip(still) {
        if *still {
            hold.renewed(since);
        } else {
            hold.lose("the lease is lost");
        }
    }
}
