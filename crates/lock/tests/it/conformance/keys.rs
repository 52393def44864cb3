//! A key is any non-empty sequence of bytes.

use holdoff_lock::{Error, Filter, InvalidKey};

use crate::conformance::place::{Place, SECOND, on_every_store};

async fn keys_are_any_bytes_and_each_is_its_own_lock(place: Place) {
    let locks = place.node().await;
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
        guards.push(locks.try_acquire(key).await.unwrap().expect("nobody has it"));
        assert!(locks.try_acquire(key).await.unwrap().is_none(), "it is taken");
    }
    let filter = Filter::default().namespace(&place.namespace).held();
    let listed = locks.list(&filter).await.unwrap();
    let mut digests: Vec<&str> = listed.iter().map(|lock| lock.digest.as_str()).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), keys.len(), "each is listed, and is another");
    for guard in guards {
        guard.release().await.unwrap();
    }
}

async fn the_empty_key_is_refused(place: Place) {
    let locks = place.node().await;
    let empty = |error: Error| matches!(error, Error::InvalidKey(InvalidKey::Empty));
    assert!(empty(locks.acquire("").await.unwrap_err()));
    assert!(empty(locks.try_acquire("").await.unwrap_err()));
    assert!(empty(locks.poll("").await.unwrap_err()));
    assert!(empty(locks.inspect("").await.unwrap_err()));
    assert!(empty(locks.force_release("").await.unwrap_err()));
}

async fn a_key_in_another_namespace_is_another_lock(place: Place) {
    let locks = place.node().await;
    let guard = locks.try_acquire("ledger").await.unwrap().unwrap();
    let elsewhere = format!("{} too", place.namespace);
    let other = locks.acquire("ledger").namespace(elsewhere).deadline(10 * SECOND).await.unwrap();
    assert!(guard.is_valid() && other.is_valid() && guard.key() != other.key());
}

on_every_store!(
    keys_are_any_bytes_and_each_is_its_own_lock,
    the_empty_key_is_refused,
    a_key_in_another_namespace_is_another_lock,
);
