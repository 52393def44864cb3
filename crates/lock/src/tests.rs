//! Tests of the behaviour that a user of locks can observe, under paused time.

mod acquiring;
mod flaky;
mod handing_over;
mod holding;
mod making_once;
mod polling;

use std::sync::Arc;
use std::time::Duration;

use crate::Locks;
use flaky::Flaky;

const SECOND: Duration = Duration::from_secs(1);

/// Returns locks and their store, which can be made to fail. Each "process" gets its own locks.
fn locks() -> (Locks, Arc<Flaky>) {
    let store = Arc::new(Flaky::new());
    (Locks::over(store.clone()), store)
}

/// Returns the locks of another process on the same store.
fn neighbour(store: &Arc<Flaky>) -> Locks {
    Locks::over(store.clone())
}

/// Lets all ready tasks run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}
