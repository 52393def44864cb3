//! Acquisition without waiting: once, or by polling.

use std::time::Duration;

use holdoff_lock::Polled;

use crate::conformance::place::{
    CONDITION_TIMEOUT, Place, acquire, held_with, inspect, on_every_store, pass, until,
};

async fn trying_takes_what_is_free_and_waits_for_nothing(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let guard = locks.try_acquire("ledger").await.unwrap().expect("it is free");
    assert!(guard.is_valid() && guard.valid_for() <= Duration::from_secs(30));
    assert!(other.try_acquire("ledger").await.unwrap().is_none());
    assert!(locks.try_acquire("ledger").await.unwrap().is_none(), "not even by the same process");
    assert_eq!(inspect(&locks, "ledger").await.waiting, 0, "whoever tries does not wait");
    let first = guard.token();
    guard.release().await.unwrap();
    let guard = other.try_acquire("ledger").await.unwrap().expect("it is free again");
    assert!(guard.token() > first);
}

async fn a_guard_that_is_dropped_lets_go(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let guard = acquire(&locks, "ledger").await;
    let token = guard.token();
    drop(guard);
    let next = tokio::time::timeout(CONDITION_TIMEOUT / 6, acquire(&other, "ledger"))
        .await
        .expect("it was not let go");
    assert!(next.token() > token);
}

async fn polling_says_when_to_come_back(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let holder = acquire(&other, "ledger").await;
    for _ in 0..3 {
        let Polled::ComeBack(after) = locks.poll("ledger").await.unwrap() else { panic!("it is held") };
        assert!(after <= Duration::from_secs(30), "{after:?}");
    }
    let token = holder.token();
    holder.release().await.unwrap();
    let mut granted = None;
    until("it is polled for in vain", async || {
        match locks.poll("ledger").await.unwrap() {
            Polled::Granted(guard) => granted = Some(guard),
            Polled::ComeBack(after) => tokio::time::sleep(after).await,
        }
        granted.is_some()
    })
    .await;
    let guard = granted.unwrap();
    assert!(guard.token() > token && guard.is_valid());
    assert_eq!(held_with(&other, "ledger").await, Some(guard.token()));
    guard.release().await.unwrap();
    pass(&other, "ledger").await;
}

on_every_store!(
    trying_takes_what_is_free_and_waits_for_nothing,
    a_guard_that_is_dropped_lets_go,
    polling_says_when_to_come_back,
);
