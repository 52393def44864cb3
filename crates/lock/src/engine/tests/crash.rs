//! The state after a crash of the server.

use std::time::Duration;

use holdoff_testbed::{Options, Postgres as Server};
use tokio::time::Instant;

use super::{granted, key, nonce, refused, request, waiting, with_lease};
use crate::engine::postgres::PostgresStore;
use crate::notify::Notification;
use crate::store::{AcquireOutcome, AcquireRefusal, AcquireRequest, LeaseStore};
use crate::{LockKey, Token};

/// Starts a server that keeps asynchronous commits in memory for long: a crash loses every commit that did not wait for
/// the disk.
async fn forgetful() -> Server {
    let settings = vec![("wal_writer_delay".to_owned(), "10s".to_owned())];
    let start = || Server::start_with(&Options { settings, ..Options::default() });
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Asks until the server is back: each dead connection fails once.
async fn granted_to(store: &PostgresStore, key: &LockKey, number: u128) -> Option<Token> {
    loop {
        match store.granted(key, nonce(number)).await {
            Ok(found) => return found,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asks until there is a response.
async fn answer(store: &PostgresStore, request: &AcquireRequest) -> AcquireOutcome {
    loop {
        match store.try_acquire(request).await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_a_lost_grant_has_expired_and_its_token_is_lower() {
    const LEASE: Duration = Duration::from_millis(1500);
    let server = forgetful().await;
    let store = PostgresStore::open(&server.create_database("crash")).await.unwrap();
    let key = key("a");
    // The first grant with a lease of this length waits for the disk, and later grants do not.
    let first = granted(&store, &with_lease(LEASE, request(&key, 1))).await;
    assert!(store.release(&key, nonce(1), first).await.unwrap());
    let (mut highest, mut forgotten) = (first, 0);
    for round in 1..=3 {
        let asked = Instant::now();
        let token = granted(&store, &with_lease(LEASE, request(&key, 10 * round))).await;
        assert!(token > highest, "{token} after {highest}");
        server.restart_immediately();
        let next = with_lease(LEASE, request(&key, 10 * round + 1));
        forgotten += u32::from(granted_to(&store, &key, 10 * round).await.is_none());
        highest = loop {
            match answer(&store, &next).await {
                AcquireOutcome::Granted(granted) => {
                    assert!(asked.elapsed() >= LEASE, "the holder may still consider its lease valid");
                    assert!(granted > token, "{granted} after {token}");
                    break granted;
                }
                AcquireOutcome::Refused(AcquireRefusal { free_in, .. }) => {
                    tokio::time::sleep(free_in.clamp(Duration::from_millis(1), LEASE)).await;
                }
            }
        };
        assert!(store.release(&key, next.owner.nonce, highest).await.unwrap());
    }
    assert!(forgotten > 0, "no crash has lost a grant");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_lease_survives_a_crash() {
    let server = forgetful().await;
    let store = PostgresStore::open(&server.create_database("crash")).await.unwrap();
    let (key, hour) = (key("a"), Duration::from_secs(3600));
    let mut listening = store.subscribe(&key);
    assert_eq!(listening.recv().await, Notification::MayBeFree, "the subscription is active");
    for number in 1..=3 {
        let token = granted(&store, &with_lease(hour, request(&key, number))).await;
        refused(&store, &waiting(&key, number + 100)).await;
        server.restart_immediately();
        assert_eq!(granted_to(&store, &key, number).await, Some(token), "crash {number}");
        // The first request recovers the store. There was no short lease to wait for.
        answer(&store, &request(&key, 99)).await;
        let refusal = refused(&store, &request(&key, 99)).await;
        assert_eq!((refusal.holder.unwrap().token, refusal.waiting), (token, 0), "a waiter must ask again");
        assert_eq!(listening.recv().await, Notification::MayBeFree, "the subscription is active again");
        assert!(store.release(&key, nonce(number), token).await.unwrap());
        store.withdraw(&key, nonce(number + 100)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_shutdown_loses_no_grant() {
    let server = forgetful().await;
    let store = PostgresStore::open(&server.create_database("clean")).await.unwrap();
    let key = key("a");
    let token = granted(&store, &request(&key, 1)).await;
    server.restart();
    store.withdraw(&key, nonce(77)).await.unwrap_or_default();
    assert_eq!(granted_to(&store, &key, 1).await, Some(token));
    assert!(
        matches!(answer(&store, &request(&key, 2)).await, AcquireOutcome::Refused(held) if held.holder.is_some())
    );
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    let next = granted(&store, &request(&key, 2)).await;
    assert_eq!(next.epoch(), token.epoch());
}
