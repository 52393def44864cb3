//! A holder is notified of the loss of its lock before the store grants the lock to another client.

use std::sync::Arc;
use std::time::Duration;

use holdoff_lock::{Error, Locks};
use holdoff_testbed::Postgres;
use sqlx::{Connection as _, Executor as _};

use crate::conformance::place::{CONDITION_TIMEOUT, Place, acquire, in_time, on_every_store};
use crate::conformance::proxy::Proxy;

/// Short, so that it expires soon; long enough that a busy machine renews in time.
const LEASE: Duration = Duration::from_millis(1500);

async fn whoever_loses_a_lock_by_force_is_told(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let guard = locks.acquire("ledger").lease(LEASE).await.unwrap();
    let working = async { guard.run(std::future::pending::<()>()).await };
    let (stopped, taken) = tokio::join!(working, other.force_release("ledger"));
    assert_eq!(taken.unwrap().expect("somebody had it").token, guard.token());
    assert!(matches!(stopped, Err(Error::Lost { token }) if token == guard.token()));
    guard.lost().await;
    assert!(!guard.is_valid() && guard.valid_for() == Duration::ZERO);
    // The previous holder does not block other contenders.
    assert!(acquire(&other, "ledger").await.token() > guard.token());
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
}

/// The store becomes unreachable for the holder only, while another client waits for the lock.
async fn told_before_the_next(holding: Locks, other: Locks, cut: impl AsyncFnOnce()) {
    let guard = Arc::new(holding.acquire("ledger").lease(LEASE).await.unwrap());
    let before = Arc::clone(&guard);
    let next = tokio::spawn(async move { (acquire(&other, "ledger").await, before.is_valid()) });
    assert!(guard.is_valid());
    cut().await;
    guard.lost().await;
    assert!(!guard.is_valid());
    let (successor, was_valid) = next.await.unwrap();
    assert!(!was_valid, "the next holder was granted the lock while the first one believed to have it");
    assert!(successor.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_loses_sight_of_postgres_is_told_before_the_next_is_granted() {
    let place = Place::postgres().await;
    let proxy = Proxy::to(Postgres::shared().port()).await;
    let [own, other] = [Postgres::shared().port(), proxy.port].map(|port| format!(":{port}/"));
    let holding = place.node_at(&place.store.replace(&own, &other)).await;
    in_time(told_before_the_next(holding, place.node().await, async || proxy.cut())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_loses_sight_of_kubernetes_is_told_before_the_next_is_granted() {
    let place = Place::stand_in().await;
    let port = place.stand_in.as_ref().unwrap().url().rsplit(':').next().unwrap().parse().unwrap();
    let proxy = Proxy::to(port).await;
    let holding = place.node_at(&format!("stand-in:http://127.0.0.1:{}", proxy.port)).await;
    in_time(told_before_the_next(holding, place.node().await, async || proxy.cut())).await;
}

/// The holder's node is the leader: the remaining nodes elect another, and then grant the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_loses_its_node_is_told_before_the_next_is_granted() {
    let place = Place::ledger().await;
    let cluster = place.ledger.as_ref().unwrap();
    let leader = cluster.leader().await;
    let (holding, other) = (place.at_seat(leader), place.at_seat((leader + 1) % 3));
    in_time(told_before_the_next(holding, other, async || cluster.kill(leader))).await;
}

/// SQLite allows one writer at a time: here another program writes to the file for longer than the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_cannot_write_to_its_file_is_told_before_the_next_is_granted() {
    let place = Place::sqlite();
    let (holding, other) = (place.node().await, place.node().await);
    let mut stranger = sqlx::SqliteConnection::connect(&place.store).await.unwrap();
    let guard = holding.acquire("ledger").lease(LEASE).await.unwrap();
    stranger.execute("begin immediate").await.unwrap();
    tokio::time::timeout(CONDITION_TIMEOUT, guard.lost()).await.expect("the holder was told");
    assert!(!guard.is_valid());
    stranger.execute("rollback").await.unwrap();
    let next = tokio::time::timeout(CONDITION_TIMEOUT, acquire(&other, "ledger")).await.unwrap();
    assert!(next.token() > guard.token());
}

on_every_store!(whoever_loses_a_lock_by_force_is_told);
