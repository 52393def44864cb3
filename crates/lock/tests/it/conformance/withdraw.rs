//! A contender that stops waiting leaves no state behind, and a lost response changes no outcome.
//!
//! A SQLite file and memory are function calls away: there a caller can lose a response only if it stops waiting.

use std::time::Duration;

use holdoff_lock::{Error, Locks};
use holdoff_testbed::Postgres;
use holdoff_testbed::kubernetes::{Fault, Verb};
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

use crate::conformance::test_store::{
    CONDITION_TIMEOUT, Proxy, SECOND, TestStore, acquire, count_tokens, held_with, in_time, inspect,
    on_every_store, on_shared_stores, pass, until,
};

/// Waits until the store has recorded this number of waiters, if it records waiters.
async fn until_recorded(test_store: &TestStore, locks: &Locks, count: u32) {
    // Kubernetes records no waiters, and contenders in memory share one queue.
    if !test_store.is_kubernetes() && test_store.store != "memory:" {
        until("the waiter is recorded", async || inspect(locks, "ledger").await.waiting == count).await;
    }
}

async fn a_dropped_or_cancelled_waiter_leaves_no_state_behind(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    count_tokens(&locks).await;
    let holder = acquire(&locks, "ledger").await;

    let dropped = tokio::spawn(other.acquire("ledger").wait(CONDITION_TIMEOUT).into_future());
    until_recorded(&test_store, &locks, 1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    until_recorded(&test_store, &locks, 0).await;

    let cancel = CancellationToken::new();
    let cancelled = other.acquire("ledger").wait(CONDITION_TIMEOUT).cancel(cancel.clone());
    let cancelled = tokio::spawn(cancelled.into_future());
    until_recorded(&test_store, &locks, 1).await;
    cancel.cancel();
    assert!(matches!(cancelled.await.unwrap(), Err(Error::Cancelled)));
    assert_eq!(
        inspect(&locks, "ledger").await.waiting,
        0,
        "the request is withdrawn before the call returns"
    );

    let last = holder.token();
    holder.release().await.unwrap();
    let guard = other.try_acquire("ledger").await.unwrap().expect("the lock is reserved for no contender");
    assert_eq!(guard.token().get(), last.get() + 1, "the withdrawn request was granted nothing");
}

/// Stopped at any time, even while the store is about to grant it: the lock is free afterwards.
async fn an_acquisition_aborted_at_any_time_leaves_the_lock_free(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
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
            tokio::time::timeout(10 * SECOND, acquire(&other, "ledger")).await.expect("the lock is not free");
        assert!(guard.token() > last);
        last = guard.token();
        guard.release().await.unwrap();
    }
    // The last aborted acquisition may have been granted the lock just now, and withdraws.
    let is_free =
        async || held_with(&other, "ledger").await.is_none() && inspect(&other, "ledger").await.waiting == 0;
    tokio::time::timeout(10 * SECOND, until("the lock is free", is_free))
        .await
        .expect("the lock is not free");
}

/// The store may have received a request of the waiter before the kill, and grant it afterwards. Then the killed process
/// holds the lock until its lease expires, and the token shows it. This cannot happen in every round.
async fn a_killed_waiter_does_not_block_other_contenders(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    count_tokens(&locks).await;
    for _ in 0..5 {
        let mut killed = test_store.process().await;
        let holder = acquire(&locks, "ledger").await;
        killed.send("ACQUIRE ledger 2000 60000").await;
        until_recorded(&test_store, &locks, 1).await;
        killed.signal(Signal::KILL);
        let last = holder.token();
        holder.release().await.unwrap();
        let next = tokio::time::timeout(20 * SECOND, acquire(&other, "ledger"));
        let guard = next.await.expect("the lock was reserved for the killed waiter");
        let skipped = guard.token().get() - last.get() - 1;
        guard.release().await.unwrap();
        match skipped {
            0 => return,
            1 => {}
            _ => panic!("{skipped} tokens were granted in between"),
        }
    }
    panic!("a killed waiter was granted the lock in each round");
}

/// Expects one grant, one token and one holder; and after the release no holder.
async fn assert_executed_once(
    locks: &Locks,
    watcher: &Locks,
    lose_next: impl Fn(),
    lost: impl Fn() -> usize,
) {
    count_tokens(locks).await;
    pass(locks, "ledger").await;
    let before = pass(locks, "ledger").await;
    lose_next();
    let guard = acquire(locks, "ledger").await;
    assert_eq!(lost(), 1, "the response to the grant was lost");
    assert_eq!(guard.token().get(), before.get() + 1, "the lock was granted once");
    assert_eq!(held_with(watcher, "ledger").await, Some(guard.token()));
    lose_next();
    guard.release().await.unwrap();
    assert_eq!(lost(), 2, "the response to the release was lost");
    assert_eq!(inspect(watcher, "ledger").await.holder, None);
    assert_eq!(pass(watcher, "ledger").await.get(), before.get() + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_response_of_postgres_is_read_back_by_nonce() {
    let test_store = TestStore::postgres().await;
    let proxy = Proxy::to(Postgres::shared().port()).await;
    let [own, other] = [Postgres::shared().port(), proxy.port].map(|port| format!(":{port}/"));
    let (locks, watcher) =
        (test_store.node_at(&test_store.store.replace(&own, &other)).await, test_store.node().await);
    in_time(assert_executed_once(&locks, &watcher, || proxy.lose_next_response(), || proxy.lost())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_response_of_kubernetes_is_read_back_by_nonce() {
    let test_store = TestStore::stand_in().await;
    let (locks, watcher) = (test_store.node().await, test_store.node().await);
    let server = test_store.stand_in.as_ref().unwrap();
    let injected = std::cell::Cell::new(0);
    let lose_next = || {
        server.inject_fault(Verb::Update, Fault::DropResponse);
        injected.set(injected.get() + 1);
    };
    in_time(assert_executed_once(&locks, &watcher, lose_next, || injected.get() - server.pending_faults()))
        .await;
}

on_every_store!(
    a_dropped_or_cancelled_waiter_leaves_no_state_behind,
    an_acquisition_aborted_at_any_time_leaves_the_lock_free,
);

mod shared_stores {
    use super::{a_killed_waiter_does_not_block_other_contenders, on_shared_stores};

    on_shared_stores!(a_killed_waiter_does_not_block_other_contenders,);
}
