//! The faults of the worker processes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::chaos::counts::Counts;
use crate::chaos::fleet::Fleet;
use crate::chaos::plan::LEASE;

/// The fleet, shared by the tasks that inject faults.
pub(crate) type Shared = Arc<Mutex<Fleet>>;

pub(crate) fn lock(fleet: &Shared) -> MutexGuard<'_, Fleet> {
    fleet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a random time between half and one and a half of this.
pub(crate) fn about(rng: &mut Rng, time: Duration) -> Duration {
    time.mul_f64(0.5 + rng.f64())
}

/// Kills workers, and sometimes shuts one down, until the end.
pub(crate) async fn kill(fleet: Shared, mut rng: Rng, until: Instant) {
    const EVERY: Duration = Duration::from_millis(300);
    while Instant::now() < until {
        sleep(about(&mut rng, EVERY)).await;
        let (choice, is_killed) = (rng.usize(..1000), rng.u32(..8) > 0);
        let mut fleet = lock(&fleet);
        let targets = fleet.targets();
        let Some(slot) = targets.get(choice % targets.len().max(1)).copied() else { continue };
        if is_killed { fleet.replace(slot) } else { fleet.dismiss(slot) }
    }
}

/// Stops workers for longer than their leases, and then lets them continue with steps that they no longer hold.
pub(crate) async fn stop(fleet: Shared, counts: Arc<Counts>, mut rng: Rng, until: Instant) {
    const BETWEEN: Duration = Duration::from_millis(500);
    while Instant::now() < until {
        sleep(about(&mut rng, BETWEEN)).await;
        let (choice, longer) = (rng.usize(..1000), about(&mut rng, Duration::from_millis(600)));
        let slot = {
            let mut fleet = lock(&fleet);
            let slot = choice % crate::chaos::fleet::SIZE;
            fleet.spare(slot, true);
            slot
        };
        // A worker that has just started holds no steps that it could report late.
        sleep(Duration::from_millis(600)).await;
        lock(&fleet).signal(slot, Signal::STOP);
        let stopped = Instant::now();
        sleep(LEASE + longer).await;
        lock(&fleet).signal(slot, Signal::CONT);
        counts.stops.add(u64::from(stopped.elapsed() > LEASE));
        // Time for the worker to send reports that the store must reject.
        sleep(Duration::from_millis(400)).await;
        lock(&fleet).spare(slot, false);
    }
}
