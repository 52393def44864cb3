//! Tokens only grow, over every kind of release.

use std::time::Duration;

use holdoff_lock::Token;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;

use crate::conformance::place::{Place, acquire, inspect, on_every_store, pass};

/// Lets a holder vanish with its runtime, without a release.
fn vanish(place: &Place) -> Token {
    let holding = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            let locks = place.node().await;
            locks.acquire("ledger").lease(Duration::from_millis(500)).await.unwrap()
        });
        runtime.shutdown_background();
        guard.token()
    };
    tokio::task::block_in_place(|| std::thread::scope(|scope| scope.spawn(holding).join().unwrap()))
}

async fn tokens_grow_over_every_way_to_let_go(place: Place) {
    let locks = place.node().await;
    let mut tokens = vec![pass(&locks, "ledger").await, pass(&locks, "ledger").await];

    drop(acquire(&locks, "ledger").await);
    tokens.push(pass(&locks, "ledger").await);

    let taken = acquire(&locks, "ledger").await;
    assert!(locks.force_release("ledger").await.unwrap().is_some());
    tokens.extend([taken.token(), inspect(&locks, "ledger").await.token]);
    drop(taken);

    tokens.push(pass(&locks, "ledger").await);
    tokens.push(vanish(&place));
    tokens.push(pass(&locks, "ledger").await);

    assert!(locks.prune(Duration::ZERO, 10_000).await.unwrap() > 0);
    assert_eq!(locks.inspect("ledger").await.unwrap(), None, "it is forgotten");
    tokens.push(pass(&locks, "ledger").await);

    let era = locks.raise_era().await.unwrap();
    tokens.push(pass(&locks, "ledger").await);
    assert_eq!(tokens.last().unwrap().era(), era);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

/// The holder keeps its lock, with the lower token.
async fn a_new_era_takes_nothing_from_those_who_hold(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let guard = acquire(&locks, "ledger").await;
    other.raise_era().await.unwrap();
    assert_eq!(inspect(&other, "ledger").await.holder.map(|holder| holder.token), Some(guard.token()));
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(pass(&other, "ledger").await.era() > token.era());
}

/// Promised on Kubernetes, where any client may delete a Lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_a_foreign_hand_deletes_goes_on_above() {
    let place = Place::stand_in().await;
    let (locks, other) = (place.node().await, place.node().await);
    let leases: Api<Lease> = Api::namespaced(place.stand_in.as_ref().unwrap().client(), "default");
    let delete = async || {
        let name = format!("holdoff-{}", inspect(&locks, "ledger").await.digest);
        leases.delete(&name, &DeleteParams::default()).await.unwrap();
    };
    let first = pass(&locks, "ledger").await;
    delete().await;
    let guard = acquire(&locks, "ledger").await;
    assert!(guard.token() > first);
    delete().await;
    let next = acquire(&other, "ledger").await;
    assert!(next.token() > guard.token());
    assert!(guard.release().await.is_err(), "it is another's");
    assert_eq!(inspect(&other, "ledger").await.holder.map(|holder| holder.token), Some(next.token()));
}

on_every_store!(tokens_grow_over_every_way_to_let_go, a_new_era_takes_nothing_from_those_who_hold);
