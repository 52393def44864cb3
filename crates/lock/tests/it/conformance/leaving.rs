//! A contender that stops waiting leaves no state behind.

use std::time::Duration;

use holdoff_lock::{Error, Locks};
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

use crate::conformance::place::{
    CONDITION_TIMEOUT, Place, SECOND, acquire, held_with, inspect, on_every_store, on_shared_stores, until,
};

/// Waits until the store has recorded this number of waiters, if it records waiters.
async fn noted(place: &Place, locks: &Locks, count: u32) {
    // Kubernetes records no waiters, and contenders in memory share one queue.
    if !place.is_kubernetes() && place.store != "memory:" {
        until("the waiter is noted", async || inspect(locks, "ledger").await.waiting == count).await;
    }
}

async fn a_waiter_that_is_dropped_or_cancelled_is_forgotten(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let holder = acquire(&locks, "ledger").await;

    let dropped = tokio::spawn(other.acquire("ledger").wait(CONDITION_TIMEOUT).into_future());
    noted(&place, &locks, 1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    noted(&place, &locks, 0).await;

    let cancel = CancellationToken::new();
    let cancelled = other.acquire("ledger").wait(CONDITION_TIMEOUT).cancel(cancel.clone());
    let cancelled = tokio::spawn(cancelled.into_future());
    noted(&place, &locks, 1).await;
    cancel.cancel();
    assert!(matches!(cancelled.await.unwrap(), Err(Error::Cancelled)));
    assert_eq!(inspect(&locks, "ledger").await.waiting, 0, "whoever is told so has been forgotten by then");

    let last = holder.token();
    holder.release().await.unwrap();
    let guard = other.try_acquire("ledger").await.unwrap().expect("it is kept for nobody");
    assert_eq!(guard.token().get(), last.get() + 1, "nobody was granted it in between");
}

/// Stopped at any time, even while the store is about to grant it: the lock is free afterwards.
async fn an_acquisition_stopped_half_way_leaves_the_lock_free(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let mut last = acquire(&locks, "ledger").await.token();
    for round in 0..30 {
        let stopped = tokio::spawn(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future());
        tokio::time::sleep(Duration::from_micros(round * 100)).await;
        stopped.abort();
        if let Ok(Ok(guard)) = stopped.await {
            guard.release().await.unwrap();
        }
        // Far sooner than the expiry of the 30 s lease.
        let guard =
            tokio::time::timeout(10 * SECOND, acquire(&other, "ledger")).await.expect("somebody has it");
        assert!(guard.token() > last);
        last = guard.token();
        guard.release().await.unwrap();
    }
    assert_eq!((held_with(&other, "ledger").await, inspect(&other, "ledger").await.waiting), (None, 0));
}

async fn a_waiter_that_is_killed_keeps_nobody_waiting(place: Place) {
    let (locks, other, mut killed) = (place.node().await, place.node().await, place.process().await);
    let holder = acquire(&locks, "ledger").await;
    killed.tell("ACQUIRE ledger 30000 60000").await;
    noted(&place, &locks, 1).await;
    killed.signal(Signal::KILL);
    let last = holder.token();
    holder.release().await.unwrap();
    // The killed waiter's lease would have been thirty seconds.
    let next = tokio::time::timeout(20 * SECOND, acquire(&other, "ledger"));
    let guard = next.await.expect("the lock was kept for the killed waiter");
    assert_eq!(guard.token().get(), last.get() + 1);
}

on_every_store!(
    a_waiter_that_is_dropped_or_cancelled_is_forgotten,
    an_acquisition_stopped_half_way_leaves_the_lock_free,
);

mod processes {
    use super::{a_waiter_that_is_killed_keeps_nobody_waiting, on_shared_stores};

    on_shared_stores!(a_waiter_that_is_killed_keeps_nobody_waiting);
}
