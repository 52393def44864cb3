//! A response that is lost after the store has executed the request.
//!
//! A SQLite file and memory are function calls away: there a caller can lose a response only if it stops waiting, which
//! `leaving` tests.

use holdoff_lock::Locks;
use holdoff_testbed::Postgres;
use holdoff_testbed::kubernetes::{Fault, Verb};

use crate::conformance::place::{Place, acquire, held_with, in_time, inspect, pass};
use crate::conformance::proxy::Proxy;

/// Expects one grant, one token and one holder; and after the release no holder.
async fn it_is_done_once(locks: &Locks, watcher: &Locks, lose_next: impl Fn(), lost: impl Fn() -> usize) {
    pass(locks, "ledger").await;
    let before = pass(locks, "ledger").await;
    lose_next();
    let guard = acquire(locks, "ledger").await;
    assert_eq!(lost(), 1, "the answer to the grant was lost");
    assert_eq!(guard.token().get(), before.get() + 1, "it was granted once");
    assert_eq!(held_with(watcher, "ledger").await, Some(guard.token()));
    lose_next();
    guard.release().await.unwrap();
    assert_eq!(lost(), 2, "the answer to the release was lost");
    assert_eq!(inspect(watcher, "ledger").await.holder, None);
    assert_eq!(pass(watcher, "ledger").await.get(), before.get() + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_of_postgres_is_found_by_its_nonce() {
    let place = Place::postgres().await;
    let proxy = Proxy::to(Postgres::shared().port()).await;
    let [own, other] = [Postgres::shared().port(), proxy.port].map(|port| format!(":{port}/"));
    let (locks, watcher) = (place.node_at(&place.store.replace(&own, &other)).await, place.node().await);
    in_time(it_is_done_once(&locks, &watcher, || proxy.lose_next_answer(), || proxy.lost())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_of_kubernetes_is_found_by_its_nonce() {
    let place = Place::stand_in().await;
    let (locks, watcher) = (place.node().await, place.node().await);
    let server = place.stand_in.as_ref().unwrap();
    let struck = std::cell::Cell::new(0);
    let lose_next = || {
        server.strike(Verb::Update, Fault::LoseAnswer);
        struck.set(struck.get() + 1);
    };
    in_time(it_is_done_once(&locks, &watcher, lose_next, || struck.get() - server.faults_left())).await;
}
