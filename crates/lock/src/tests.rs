//! What a user of locks would notice, under paused time.

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

/// Locks, and the store to play tricks with. Give each "process" its own.
fn locks() -> (Locks, Arc<Flaky>) {
    let store = Arc::new(Flaky::new());
    (Locks::over(store.clone()), store)
}

/// Another process on the same store.
fn neighbour(store: &Arc<Flaky>) -> Locks {
    Locks::over(store.clone())
}

/// Lets everything that is ready happen.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}
