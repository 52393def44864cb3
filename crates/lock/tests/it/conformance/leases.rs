//! Leases: a holder is notified of the loss of its lock before the store grants the lock to another client, also if the
//! holder was paused or killed, or its clock is wrong.

use std::sync::Arc;
use std::time::Duration;

use holdoff_lock::{Error, Locks};
use holdoff_testbed::Postgres;
use rustix::process::Signal;
use sqlx::{Connection as _, Executor as _};
use tokio::time::Instant;

use crate::conformance::test_store::{
    CONDITION_TIMEOUT, Proxy, SECOND, TestStore, acquire, held_with, in_time, on_every_store,
    on_shared_stores,
};
use crate::node::Write;

/// Short, so that it expires soon; long enough that a busy machine renews in time.
const LEASE: Duration = Duration::from_millis(1500);

async fn a_forced_release_notifies_the_holder(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let guard = locks.acquire("ledger").lease(LEASE).await.unwrap();
    let working = async { guard.run(std::future::pending::<()>()).await };
    let (stopped, taken) = tokio::join!(working, other.force_release("ledger"));
    assert_eq!(taken.unwrap().expect("the lock was held").token, guard.token());
    assert!(matches!(stopped, Err(Error::Lost { token }) if token == guard.token()));
    guard.lost().await;
    assert!(!guard.is_valid() && guard.valid_for() == Duration::ZERO);
    // The previous holder does not block other contenders.
    assert!(acquire(&other, "ledger").await.token() > guard.token());
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
}

/// The store becomes unreachable for the holder only, while another client waits for the lock.
async fn assert_notified_before_the_next_grant(holding: Locks, other: Locks, cut: impl AsyncFnOnce()) {
    let guard = Arc::new(holding.acquire("ledger").lease(LEASE).await.unwrap());
    let before = Arc::clone(&guard);
    let next = tokio::spawn(async move { (acquire(&other, "ledger").await, before.is_valid()) });
    assert!(guard.is_valid());
    cut().await;
    guard.lost().await;
    assert!(!guard.is_valid());
    let (successor, was_valid) = next.await.unwrap();
    assert!(!was_valid, "the lock was granted while the first holder considered it valid");
    assert!(successor.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_without_postgres_is_notified_before_the_next_grant() {
    let test_store = TestStore::postgres().await;
    let proxy = Proxy::to(Postgres::shared().port()).await;
    let [own, other] = [Postgres::shared().port(), proxy.port].map(|port| format!(":{port}/"));
    let holding = test_store.node_at(&test_store.store.replace(&own, &other)).await;
    in_time(assert_notified_before_the_next_grant(holding, test_store.node().await, async || proxy.cut()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_without_kubernetes_is_notified_before_the_next_grant() {
    let test_store = TestStore::stand_in().await;
    let port = test_store.stand_in.as_ref().unwrap().url().rsplit(':').next().unwrap().parse().unwrap();
    let proxy = Proxy::to(port).await;
    let holding = test_store.node_at(&format!("stand-in:http://127.0.0.1:{}", proxy.port)).await;
    in_time(assert_notified_before_the_next_grant(holding, test_store.node().await, async || proxy.cut()))
        .await;
}

/// The holder's node is the leader: the remaining nodes elect another, and then grant the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_without_its_ledger_node_is_notified_before_the_next_grant() {
    let test_store = TestStore::ledger().await;
    let cluster = test_store.ledger.as_ref().unwrap();
    let leader = cluster.leader().await;
    let (holding, other) = (test_store.locks_of_node(leader), test_store.locks_of_node((leader + 1) % 3));
    in_time(assert_notified_before_the_next_grant(holding, other, async || cluster.kill(leader))).await;
}

/// SQLite allows one writer at a time: here another program writes to the file for longer than the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_cannot_write_its_file_is_notified_before_the_next_grant() {
    let test_store = TestStore::sqlite();
    let (holding, other) = (test_store.node().await, test_store.node().await);
    let mut stranger = sqlx::SqliteConnection::connect(&test_store.store).await.unwrap();
    let guard = holding.acquire("ledger").lease(LEASE).await.unwrap();
    stranger.execute("begin immediate").await.unwrap();
    tokio::time::timeout(CONDITION_TIMEOUT, guard.lost()).await.expect("the holder was not notified");
    assert!(!guard.is_valid());
    stranger.execute("rollback").await.unwrap();
    let next = tokio::time::timeout(CONDITION_TIMEOUT, acquire(&other, "ledger")).await.unwrap();
    assert!(next.token() > guard.token());
}

async fn the_resource_rejects_a_holder_that_was_paused_past_its_lease(test_store: TestStore) {
    let (locks, resource, mut paused) =
        (test_store.node().await, test_store.resource().await, test_store.process().await);
    paused.send("ACQUIRE ledger 1000 60000").await;
    let stale = paused.granted().await;
    assert_eq!(paused.request("WRITE before").await, "written");

    test_store.pause(&paused).await;
    let guard = acquire(&locks, "ledger").await;
    assert!(guard.token().get() > stale);
    assert_eq!(resource.write(guard.key(), guard.token(), "successor").await, Write::Done);
    paused.signal(Signal::CONT);

    assert_eq!(paused.request("WRITE after").await, "stale");
    assert_eq!(paused.request("VALID").await, "false");
    assert_eq!(paused.request("RELEASE").await, "lost", "another client holds the lock");
    assert_eq!(held_with(&locks, "ledger").await, Some(guard.token()), "the next holder keeps the lock");
    let events = resource.events().await;
    let written: Vec<&str> = events.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(written, ["before", "successor"]);
    guard.release().await.unwrap();
}

async fn a_waiter_is_granted_the_lock_after_the_lease_of_a_killed_holder(test_store: TestStore) {
    let (locks, mut killed) = (test_store.node().await, test_store.process().await);
    killed.send("ACQUIRE ledger 1000 60000").await;
    let last = killed.granted().await;
    let killed_at = Instant::now();
    killed.signal(Signal::KILL);
    // The last renewal was at most a third of the lease earlier. If the killed process led the ledger, the request may
    // take as long as the lease.
    let early = locks.try_acquire("ledger").await.unwrap();
    assert!(early.is_none() || killed_at.elapsed() >= SECOND * 2 / 3, "the lease has not expired");
    drop(early);
    assert!(acquire(&locks, "ledger").await.token().get() > last);
}

/// Long enough that a holder on a busy machine renews in time. If a wrong clock had an effect, the lease would expire
/// at once: the error of the clock is far larger.
const SKEWED_LEASE_MS: u64 = 6000;
/// Longer than a third of the lease, after which a holder renews.
const OBSERVED: Duration = Duration::from_secs(3);

/// The store grants no lock that a process with a wrong clock holds and renews. That process gets its turn, and its
/// lock expires when it dies.
async fn assert_clock_skew_has_no_effect(test_store: &TestStore, skew: &str, key: &str) {
    let (locks, mut skewed) = (test_store.node().await, test_store.process_off_by(skew).await);
    let guard = locks.acquire(key).lease(Duration::from_millis(SKEWED_LEASE_MS)).await.unwrap();
    skewed.send(&format!("ACQUIRE {key} {SKEWED_LEASE_MS} 60000")).await;
    let held_since = Instant::now();
    while held_since.elapsed() < OBSERVED {
        assert_eq!(held_with(&locks, key).await, Some(guard.token()), "this process holds the lock");
        assert!(guard.is_valid());
        tokio::time::sleep(SECOND / 20).await;
    }
    let ours = guard.token().get();
    guard.release().await.unwrap();

    let theirs = skewed.granted().await;
    assert!(theirs > ours);
    let held_since = Instant::now();
    while held_since.elapsed() < OBSERVED {
        assert!(locks.try_acquire(key).await.unwrap().is_none(), "the other process holds the lock");
        tokio::time::sleep(SECOND / 20).await;
    }
    assert_eq!(skewed.request("VALID").await, "true");
    skewed.signal(Signal::KILL);
    assert!(acquire(&locks, key).await.token().get() > theirs);
}

/// Both at once. The clock of the test process is right.
async fn wall_clocks_that_are_wrong_by_an_hour_have_no_effect(test_store: TestStore) {
    tokio::join!(
        assert_clock_skew_has_no_effect(&test_store, "-1h", "ledger"),
        assert_clock_skew_has_no_effect(&test_store, "+1h", "journal")
    );
}

on_every_store!(a_forced_release_notifies_the_holder,);

mod shared_stores {
    use super::{
        a_waiter_is_granted_the_lock_after_the_lease_of_a_killed_holder, on_shared_stores,
        the_resource_rejects_a_holder_that_was_paused_past_its_lease,
        wall_clocks_that_are_wrong_by_an_hour_have_no_effect,
    };

    on_shared_stores!(
        the_resource_rejects_a_holder_that_was_paused_past_its_lease,
        a_waiter_is_granted_the_lock_after_the_lease_of_a_killed_holder,
        wall_clocks_that_are_wrong_by_an_hour_have_no_effect,
    );
}
