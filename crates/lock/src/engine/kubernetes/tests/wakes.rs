//! Notifications of released locks.

use holdoff_testbed::CONDITION_TIMEOUT;
use holdoff_testbed::kubernetes::{Fault, Verb};
use kube::api::DeleteParams;

use super::*;
use crate::wakes::{Heard, Subscription};

async fn heard(subscription: &mut Subscription) -> Heard {
    tokio::time::timeout(CONDITION_TIMEOUT, subscription.heard()).await.expect("a word")
}

/// Returns a subscription after the notification that the watch has started.
async fn listen(engine: &Kubernetes, key: &Key) -> Subscription {
    let mut subscription = engine.subscribe(key);
    assert_eq!(heard(&mut subscription).await, Heard::Maybe);
    subscription
}

#[tokio::test]
async fn letting_go_is_heard_by_those_who_listen() {
    for world in World::all().await {
        let (holder, listener, key) = (world.engine(), world.engine(), fresh_key());
        let bid = bid(&key, LONG);
        let token = acquire(&holder, &bid).await;
        let mut subscription = listen(&listener, &key).await;
        holder.release(&key, bid.owner.nonce, token).await.unwrap();
        assert_eq!(heard(&mut subscription).await, Heard::Maybe);
        let token = acquire(&holder, &bid).await;
        world.leases().delete(&entry::name(key.digest()), &DeleteParams::default()).await.unwrap();
        assert_eq!(heard(&mut subscription).await, Heard::Maybe, "deleted by a foreign hand");
        assert!(pass(&listener, &key).await > token);
    }
}

#[tokio::test]
async fn one_watch_serves_all_and_ends_with_the_last() {
    let (server, world) = World::stand_in().await;
    let (engine, one, other) = (world.engine(), fresh_key(), fresh_key());
    let first = listen(&engine, &one).await;
    let mut second = engine.subscribe(&other);
    let bid = bid(&other, LONG);
    let token = acquire(&engine, &bid).await;
    engine.release(&other, bid.owner.nonce, token).await.unwrap();
    assert_eq!(heard(&mut second).await, Heard::Maybe);
    assert_eq!(server.requests(Verb::Watch), 1);
    server.watched_by(1).await;
    drop((first, second));
    server.watched_by(0).await;
    // The watch starts again with the next subscriber.
    let again = listen(&engine, &one).await;
    server.watched_by(1).await;
    drop(engine);
    server.watched_by(0).await;
    drop(again);
}

#[tokio::test]
async fn a_watch_that_is_cut_begins_again_and_says_so() {
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    let mut subscription = listen(&engine, &key).await;
    for fault in [None, Some(Fault::DropRequest), Some(Fault::Refuse { code: 503, retry_after: None })] {
        server.watched_by(1).await;
        if let Some(fault) = fault {
            server.strike(Verb::Watch, fault);
        }
        server.cut_watches();
        assert_eq!(heard(&mut subscription).await, Heard::Maybe, "something may have been missed");
        let bid = bid(&key, LONG);
        let token = acquire(&engine, &bid).await;
        engine.release(&key, bid.owner.nonce, token).await.unwrap();
        assert_eq!(heard(&mut subscription).await, Heard::Maybe);
    }
}

#[tokio::test]
async fn forgotten_history_is_read_anew() {
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    let mut subscription = listen(&engine, &key).await;
    server.watched_by(1).await;
    // The running watch learns that its history is gone: by an event, or by an error response.
    for is_event in [true, false] {
        if is_event {
            server.forget_history();
        } else {
            server.strike(Verb::Watch, Fault::Refuse { code: 410, retry_after: None });
        }
        server.end_watches();
        assert_eq!(heard(&mut subscription).await, Heard::Maybe);
        server.watched_by(1).await;
    }
    let bid = bid(&key, LONG);
    let token = acquire(&engine, &bid).await;
    engine.release(&key, bid.owner.nonce, token).await.unwrap();
    assert_eq!(heard(&mut subscription).await, Heard::Maybe);
}

#[tokio::test]
async fn what_is_heard_of_a_holder_counts_as_seen() {
    let (_server, world) = World::stand_in().await;
    let (holder, listener, key) = (world.engine(), world.engine(), fresh_key());
    let other = fresh_key();
    let mut subscription = listen(&listener, &other).await;
    let lease = Duration::from_millis(300);
    acquire(&holder, &bid(&key, lease)).await;
    // A later notification: the grant has been observed by then.
    pass(&holder, &other).await;
    assert_eq!(heard(&mut subscription).await, Heard::Maybe);
    tokio::time::sleep(lease).await;
    acquire(&listener, &bid(&key, lease)).await;
}
