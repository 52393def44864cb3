//! The state after a crash of the server, and after its clock was set.

use std::time::Duration;

use holdoff_testbed::{Options, Postgres as Server};
use metrics_util::CompositeKey;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::time::Instant;

use super::{LEASE, TestStore, granted, granted_at_last, key, nonce, refused, request, waiting, with_lease};
use crate::engine::postgres::PostgresStore;
use crate::notify::Notification;
use crate::store::{AcquireOutcome, AcquireRefusal, AcquireRequest, LeaseStore, Result};
use crate::{LockKey, Token};

/// Starts a server that keeps asynchronous commits in memory for long: a crash loses every commit that did not wait for
/// the disk.
async fn forgetful() -> Server {
    let settings = vec![("wal_writer_delay".to_owned(), "10s".to_owned())];
    let start = || Server::start_with(&Options { settings, ..Options::default() });
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Asks until the server is back: each dead connection fails once.
async fn until_answered<T>(call: impl AsyncFn() -> Result<T>) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn granted_to(store: &PostgresStore, key: &LockKey, number: u128) -> Option<Token> {
    until_answered(async || store.granted(key, nonce(number)).await).await
}

async fn answer(store: &PostgresStore, request: &AcquireRequest) -> AcquireOutcome {
    until_answered(async || store.try_acquire(request).await).await
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
        // The first request recovers the store. There was no short lease to wait for, but the floor is ahead of the clock.
        let refusal = loop {
            match answer(&store, &request(&key, 99)).await {
                AcquireOutcome::Refused(refusal) if refusal.holder.is_some() => break refusal,
                AcquireOutcome::Refused(AcquireRefusal { free_in, .. }) => {
                    assert!(free_in <= Duration::from_secs(3), "{free_in:?}");
                    tokio::time::sleep(free_in).await;
                }
                AcquireOutcome::Granted(token) => panic!("granted twice: {token}"),
            }
        };
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
    assert!(next > token);
}

/// Lets the schema of locks read a clock that [`set_clock`] sets, in all later sessions of this database.
fn replace_clock(server: &Server, database: &str) {
    let statements = "create schema fake;
        create table fake.step (ahead interval not null);
        insert into fake.step values ('0');
        create function fake.clock_timestamp() returns timestamptz language sql volatile as
            $$ select pg_catalog.clock_timestamp() + ahead from fake.step $$;
        do $$ begin
            execute format('alter database %I set search_path = fake, pg_catalog', current_database());
        end $$";
    server.psql(database, statements);
}

fn set_clock(server: &Server, database: &str, ahead: &str) {
    server.psql(database, &format!("update fake.step set ahead = '{ahead}'"));
}

/// Whatever the clock shows after a crash, all tokens that the crash has lost are below the later ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back_over_a_crash_repeats_no_token() {
    let server = forgetful().await;
    let url = server.create_database("crash");
    let database = url.rsplit('/').next().unwrap();
    replace_clock(&server, database);
    let (store, other, key) = (PostgresStore::open(&url).await.unwrap(), key("b"), key("a"));
    let short = |number| with_lease(Duration::from_millis(200), request(&key, number));
    // This grant raises the ceiling on the disk. Those of the next two seconds stay in memory.
    granted(&store, &with_lease(Duration::from_millis(200), request(&other, 1))).await;
    let lost = granted(&store, &short(2)).await;
    server.restart_immediately();
    set_clock(&server, database, "-1 hour");
    assert_eq!(granted_to(&store, &key, 2).await, None, "the crash has lost the grant");
    let next = loop {
        match answer(&store, &short(3)).await {
            AcquireOutcome::Granted(token) => break token,
            AcquireOutcome::Refused(AcquireRefusal { free_in, .. }) => {
                assert!(free_in <= Duration::from_secs(3), "{free_in:?}");
                tokio::time::sleep(free_in.max(Duration::from_millis(1))).await;
            }
        }
    };
    assert!(next > lost, "{next} after {lost}");
}

/// The grant to the second client is lost. Its token may be in use, so the first client must not renew its lower one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_lease_has_expired_does_not_return_after_a_crash() {
    let server = forgetful().await;
    let store = PostgresStore::open(&server.create_database("crash")).await.unwrap();
    let (key, lease) = (key("a"), Duration::from_millis(200));
    let token = granted(&store, &with_lease(lease, request(&key, 1))).await;
    granted_at_last(&store, &with_lease(lease, request(&key, 2))).await;
    server.restart_immediately();
    assert_eq!(granted_to(&store, &key, 2).await, None, "the crash has lost the grant");
    let renewed = async || until_answered(async || store.renew(&key, nonce(1), token, LEASE).await).await;
    assert!(!renewed().await, "before the recovery");
    assert!(matches!(answer(&store, &request(&key, 3)).await, AcquireOutcome::Refused(_)));
    assert!(!renewed().await, "after the recovery");
}

/// Returns the steps of the store's clock that were counted since the last call, by direction.
fn counted_steps(recorder: &DebuggingRecorder) -> Vec<(String, u64)> {
    let counted = recorder.snapshotter().snapshot().into_vec().into_iter();
    let steps = counted.filter(|(key, ..)| key.key().name() == "holdoff_lock_store_clock_steps_total");
    let direction_and_count = |(key, _, _, value): (CompositeKey, _, _, DebugValue)| match value {
        DebugValue::Counter(0) => None,
        DebugValue::Counter(count) => Some((key.key().labels().next()?.value().to_owned(), count)),
        other => panic!("not a counter: {other:?}"),
    };
    steps.filter_map(direction_and_count).collect()
}

/// The promise that clocks do not matter has this exception. Tokens protect the resource, and the step is reported.
#[tokio::test]
async fn a_step_of_the_clock_ends_or_prolongs_all_leases_and_is_reported() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let test_store = TestStore::postgres().await;
    let (server, database) = (Server::shared(), test_store.url.rsplit('/').next().unwrap());
    replace_clock(server, database);
    let (one, other) = (test_store.open().await, test_store.open().await);
    let key = key("a");
    let token = granted(&*one, &request(&key, 1)).await;
    assert!(one.renew(&key, nonce(1), token, LEASE).await.unwrap());
    refused(&*other, &request(&key, 2)).await;
    assert_eq!(counted_steps(&recorder), []);

    set_clock(server, database, "1 hour");
    let taken = granted(&*other, &request(&key, 2)).await;
    assert!(taken > token, "the lease of the first holder has ended early");
    assert_eq!(counted_steps(&recorder), [("forward".to_owned(), 1)], "the second client saw the step");
    assert!(!one.renew(&key, nonce(1), token, LEASE).await.unwrap());

    set_clock(server, database, "0");
    assert!(other.renew(&key, nonce(2), taken, LEASE).await.unwrap());
    assert_eq!(counted_steps(&recorder), [("backward".to_owned(), 1)]);
    let refusal = refused(&*one, &request(&key, 3)).await;
    assert!(refusal.free_in > Duration::from_secs(3000), "the lease lasts longer by the step: {refusal:?}");
    assert!(other.release(&key, nonce(2), taken).await.unwrap());
    let next = granted(&*one, &request(&key, 3)).await;
    assert!(next > taken, "{next} after {taken}: the clock is behind the last token");
}
