//! A holder that was paused for longer than its lease, and continues without noticing.

use rustix::process::Signal;
use tokio::time::Instant;

use crate::conformance::place::{Place, SECOND, acquire, held_with, on_shared_stores};
use crate::node::Write;

async fn a_holder_paused_past_its_lease_is_refused_by_its_token(place: Place) {
    let (locks, resource, mut paused) = (place.node().await, place.resource().await, place.process().await);
    paused.tell("ACQUIRE ledger 1000 60000").await;
    let stale = paused.granted().await;
    assert_eq!(paused.ask("WRITE before").await, "written");

    place.pause(&paused).await;
    let guard = acquire(&locks, "ledger").await;
    assert!(guard.token().get() > stale);
    assert_eq!(resource.write(guard.key(), guard.token(), "successor").await, Write::Done);
    paused.signal(Signal::CONT);

    assert_eq!(paused.ask("WRITE after").await, "stale");
    assert_eq!(paused.ask("VALID").await, "false");
    assert_eq!(paused.ask("RELEASE").await, "lost", "it is another's");
    assert_eq!(held_with(&locks, "ledger").await, Some(guard.token()), "which keeps it");
    let events = resource.events().await;
    let written: Vec<&str> = events.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(written, ["before", "successor"]);
    guard.release().await.unwrap();
}

async fn a_killed_holder_is_succeeded_when_its_lease_is_over(place: Place) {
    let (locks, mut killed) = (place.node().await, place.process().await);
    killed.tell("ACQUIRE ledger 1000 60000").await;
    let last = killed.granted().await;
    let killed_at = Instant::now();
    killed.signal(Signal::KILL);
    // The last renewal was at most a third of the lease earlier. If the killed process led the ledger, the request may
    // take as long as the lease.
    let early = locks.try_acquire("ledger").await.unwrap();
    assert!(early.is_none() || killed_at.elapsed() >= SECOND * 2 / 3, "nobody knows yet");
    drop(early);
    assert!(acquire(&locks, "ledger").await.token().get() > last);
}

on_shared_stores!(
    a_holder_paused_past_its_lease_is_refused_by_its_token,
    a_killed_holder_is_succeeded_when_its_lease_is_over,
);
