//! Keys, and the operations of an operator: inspect, list, and force-release locks.

use holdoff_lock::{Error, InvalidKey, LockFilter};

use crate::conformance::test_store::{SECOND, TestStore, acquire, held_with, inspect, on_every_store, pass};

async fn each_sequence_of_bytes_is_a_separate_lock(test_store: TestStore) {
    let locks = test_store.node().await;
    let long = |last: u8| [vec![b'k'; 10_000], vec![last]].concat();
    let keys: [Vec<u8>; 8] = [
        b"plain".to_vec(),
        vec![0],
        vec![0, 0],
        (0..=255).collect(),
        "Schlüssel/鍵 %_\\'\"".into(),
        long(b'a'),
        long(b'b'),
        vec![0xff; 10_000],
    ];
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(locks.try_acquire(key).await.unwrap().expect("the lock is free"));
        assert!(locks.try_acquire(key).await.unwrap().is_none(), "the lock is held");
    }
    let filter = LockFilter::default().namespace(&test_store.namespace).held();
    let listed = locks.list(&filter).await.unwrap();
    let mut digests: Vec<&str> = listed.iter().map(|lock| lock.digest.as_str()).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), keys.len(), "each lock is listed under its own digest");
    for guard in guards {
        guard.release().await.unwrap();
    }
}

async fn the_empty_key_is_rejected(test_store: TestStore) {
    let locks = test_store.node().await;
    let empty = |error: Error| matches!(error, Error::InvalidKey(InvalidKey::Empty));
    assert!(empty(locks.acquire("").await.unwrap_err()));
    assert!(empty(locks.try_acquire("").await.unwrap_err()));
    assert!(empty(locks.poll("").await.unwrap_err()));
    assert!(empty(locks.inspect("").await.unwrap_err()));
    assert!(empty(locks.force_release("").await.unwrap_err()));
}

async fn a_key_in_another_namespace_is_another_lock(test_store: TestStore) {
    let locks = test_store.node().await;
    let guard = locks.try_acquire("ledger").await.unwrap().unwrap();
    let elsewhere = format!("{} too", test_store.namespace);
    let other = locks.acquire("ledger").namespace(elsewhere).deadline(10 * SECOND).await.unwrap();
    assert!(guard.is_valid() && other.is_valid() && guard.key() != other.key());
}

async fn inspection_reports_the_holder(test_store: TestStore) {
    let locks = test_store.node_with(|settings| settings.with_name("the night shift")).await;
    let other = test_store.node().await;
    assert_eq!(other.inspect("ledger").await.unwrap(), None, "the lock was never held");
    let guard = acquire(&locks, "ledger").await;
    let record = inspect(&other, "ledger").await;
    let holder = record.holder.expect("the lock is held");
    assert_eq!((record.namespace.as_str(), record.key.as_str()), (test_store.namespace.as_str(), "ledger"));
    assert_eq!((record.token, holder.token), (guard.token(), guard.token()));
    assert_eq!(holder.owner.name, "the night shift");
    let token = guard.token();
    guard.release().await.unwrap();
    let record = inspect(&other, "ledger").await;
    assert_eq!((record.token, record.holder), (token, None), "a released lock keeps its token");
}

async fn a_listing_applies_the_filter(test_store: TestStore) {
    let locks = test_store.node().await;
    let _held = [acquire(&locks, "a/1").await, acquire(&locks, "b/1").await];
    pass(&locks, "a/2").await;
    let own = || LockFilter::default().namespace(&test_store.namespace);
    let keys = async |filter: LockFilter| {
        let listed = locks.list(&filter).await.unwrap();
        listed.into_iter().map(|lock| lock.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(own()).await, ["a/1", "a/2", "b/1"]);
    assert_eq!(keys(own().held()).await, ["a/1", "b/1"]);
    assert_eq!(keys(own().prefix("a/")).await, ["a/1", "a/2"]);
    assert_eq!(keys(own().prefix("a/").held()).await, ["a/1"]);
    assert_eq!(keys(own().limit(2)).await.len(), 2);
    assert!(keys(LockFilter::default().namespace("unused")).await.is_empty());
}

/// The previous holder is notified, its token is rejected, and its release of another client's lock changes nothing.
async fn a_forced_release_frees_the_lock_and_raises_the_token(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    assert_eq!(other.force_release("ledger").await.unwrap(), None, "the lock is free");
    let guard = acquire(&locks, "ledger").await;
    let taken = other.force_release("ledger").await.unwrap().expect("the lock was held");
    assert_eq!(taken.token, guard.token());
    let record = inspect(&other, "ledger").await;
    assert!(record.token > guard.token() && record.holder.is_none(), "{record:?}");
    if test_store.store == "memory:" {
        // In memory there is one queue, and the previous holder is still its head.
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
        assert!(acquire(&other, "ledger").await.token() > record.token);
        return;
    }
    let next = acquire(&other, "ledger").await;
    assert!(next.token() > record.token);
    assert!(matches!(guard.release().await, Err(Error::Lost { token }) if token == taken.token));
    assert_eq!(
        held_with(&other, "ledger").await,
        Some(next.token()),
        "the stale release does not affect the next holder"
    );
    next.release().await.unwrap();
}

on_every_store!(
    each_sequence_of_bytes_is_a_separate_lock,
    the_empty_key_is_rejected,
    a_key_in_another_namespace_is_another_lock,
    inspection_reports_the_holder,
    a_listing_applies_the_filter,
    a_forced_release_frees_the_lock_and_raises_the_token,
);
