//! Operations of an operator: inspect, list, and force-release locks.

use holdoff_lock::{Error, Filter};

use crate::conformance::place::{Place, acquire, held_with, inspect, on_every_store, pass};

async fn looking_at_a_lock_says_who_has_it(place: Place) {
    let locks = place.node_with(|settings| settings.with_name("the night shift")).await;
    let other = place.node().await;
    assert_eq!(other.inspect("ledger").await.unwrap(), None, "it was never held");
    let guard = acquire(&locks, "ledger").await;
    let record = inspect(&other, "ledger").await;
    let holder = record.holder.expect("it is held");
    assert_eq!((record.namespace.as_str(), record.key.as_str()), (place.namespace.as_str(), "ledger"));
    assert_eq!((record.token, holder.token), (guard.token(), guard.token()));
    assert_eq!(holder.owner.name, "the night shift");
    let token = guard.token();
    guard.release().await.unwrap();
    let record = inspect(&other, "ledger").await;
    assert_eq!((record.token, record.holder), (token, None), "its token stays");
}

async fn locks_are_listed_by_what_is_asked_for(place: Place) {
    let locks = place.node().await;
    let _held = [acquire(&locks, "a/1").await, acquire(&locks, "b/1").await];
    pass(&locks, "a/2").await;
    let own = || Filter::default().namespace(&place.namespace);
    let keys = async |filter: Filter| {
        let listed = locks.list(&filter).await.unwrap();
        listed.into_iter().map(|lock| lock.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(own()).await, ["a/1", "a/2", "b/1"]);
    assert_eq!(keys(own().held()).await, ["a/1", "b/1"]);
    assert_eq!(keys(own().prefix("a/")).await, ["a/1", "a/2"]);
    assert_eq!(keys(own().prefix("a/").held()).await, ["a/1"]);
    assert_eq!(keys(own().limit(2)).await.len(), 2);
    assert!(keys(Filter::default().namespace("nobody's")).await.is_empty());
}

/// The previous holder is notified, its token is rejected, and its release of another client's lock changes nothing.
async fn a_lock_is_taken_by_force(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    assert_eq!(other.force_release("ledger").await.unwrap(), None, "nobody has it");
    let guard = acquire(&locks, "ledger").await;
    let taken = other.force_release("ledger").await.unwrap().expect("somebody had it");
    assert_eq!(taken.token, guard.token());
    let record = inspect(&other, "ledger").await;
    assert!(record.token > guard.token() && record.holder.is_none(), "{record:?}");
    if place.store == "memory:" {
        // In memory there is one queue, and the previous holder is still its head.
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
        assert!(acquire(&other, "ledger").await.token() > record.token);
        return;
    }
    let next = acquire(&other, "ledger").await;
    assert!(next.token() > record.token);
    assert!(matches!(guard.release().await, Err(Error::Lost { token }) if token == taken.token));
    assert_eq!(held_with(&other, "ledger").await, Some(next.token()), "it is not touched");
    next.release().await.unwrap();
}

on_every_store!(
    looking_at_a_lock_says_who_has_it,
    locks_are_listed_by_what_is_asked_for,
    a_lock_is_taken_by_force,
);
