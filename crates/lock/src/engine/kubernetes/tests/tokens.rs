//! Tokens grow over every change of the Leases.

use holdoff_policy::as_micros_u64;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::*;
use crate::clock;

#[tokio::test]
async fn tokens_grow_after_the_lease_object_was_deleted() {
    for cluster in TestCluster::all().await {
        let (engine, key) = (cluster.engine(), fresh_key());
        let mut last = Token::new(0);
        for _ in 0..5 {
            for _ in 0..3 {
                let token = pass(&engine, &key).await;
                assert!(token > last);
                last = token;
            }
            cluster
                .leases()
                .delete(&lease_object::name(key.digest()), &DeleteParams::default())
                .await
                .unwrap();
        }
        // No earlier observation is needed: a process that has never observed the lock grants a higher token, too.
        assert!(pass(&cluster.engine(), &key).await > last);
    }
}

#[tokio::test]
async fn a_holder_loses_its_lock_when_the_lease_object_is_deleted() {
    for cluster in TestCluster::all().await {
        let (engine, key) = (cluster.engine(), fresh_key());
        let request = request(&key, LONG);
        let token = acquire(&engine, &request).await;
        cluster.leases().delete(&lease_object::name(key.digest()), &DeleteParams::default()).await.unwrap();
        assert!(!engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap());
        assert!(!engine.release(&key, request.owner.nonce, token).await.unwrap());
        assert!(pass(&engine, &key).await > token);
    }
}

#[tokio::test]
async fn tokens_grow_after_all_annotations_were_removed() {
    for cluster in TestCluster::all().await {
        let (engine, key) = (cluster.engine(), fresh_key());
        let name = lease_object::name(key.digest());
        pass(&engine, &key).await;
        let last = pass(&engine, &key).await;
        let nothing = Patch::Merge(json!({ "metadata": { "annotations": null, "labels": null } }));
        cluster.leases().patch(&name, &PatchParams::default(), &nothing).await.unwrap();
        assert!(engine.read(&key).await.unwrap().is_none(), "the lock counts as never held");
        assert!(pass(&engine, &key).await > last);
        assert_eq!(
            engine.read(&key).await.unwrap().unwrap().key,
            key.readable(),
            "the next grant restores the annotations"
        );
    }
}

/// A floor above the time of any test.
const HIGH: Token = Token::new(1 << 60);

#[tokio::test]
async fn tokens_are_above_a_raised_floor() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let (engine, other) = (cluster.engine(), cluster.engine());
    let (known, unknown, held) = (fresh_key(), fresh_key(), fresh_key());
    pass(&engine, &known).await;
    let holder = request(&held, LONG);
    let token = acquire(&engine, &holder).await;
    assert_eq!(engine.raise_floor(HIGH).await.unwrap(), HIGH);
    for key in [&known, &unknown] {
        let token = pass(&other, key).await;
        assert!(token > HIGH, "{token}");
        assert!(pass(&engine, key).await > token);
    }
    assert!(engine.renew(&held, holder.owner.nonce, token, LONG).await.unwrap(), "a held lock stays held");
    engine.release(&held, holder.owner.nonce, token).await.unwrap();
    assert!(pass(&engine, &held).await > HIGH);
    assert_eq!(other.raise_floor(token).await.unwrap(), HIGH, "the floor is never lowered");
}

#[tokio::test]
async fn the_floor_survives_the_deletion_of_its_record() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    pass(&engine, &key).await;
    engine.raise_floor(HIGH).await.unwrap();
    cluster.leases().delete("holdoff-record", &DeleteParams::default()).await.unwrap();
    assert!(pass(&engine, &fresh_key()).await > HIGH, "the remaining locks record the floor");
}

/// A restore of etcd brings back an earlier state of a Lease, and versions that were used before.
#[tokio::test]
async fn tokens_grow_after_the_cluster_was_restored() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    let (leases, name) = (cluster.leases(), lease_object::name(key.digest()));
    let annotate = async |annotations: &Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        leases.patch(&name, &PatchParams::default(), &patch).await.unwrap()
    };
    let created = pass(&engine, &key).await;
    let backup = json!({ "holdoff/token": (created.get() - 3_600_000_000).to_string() });
    annotate(&backup).await;
    let last = pass(&engine, &key).await;
    let wall = clock::wall();
    assert!(
        last < created && last.get() <= as_micros_u64(wall),
        "the token is the time of the grant: {last}"
    );
    // The server reports whole seconds, and a process reads them once: another process may be a second late.
    while clock::wall() < wall + Duration::from_secs(2) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    annotate(&backup).await;
    assert!(pass(&cluster.engine(), &key).await > last);
}

/// The clock of the client is an hour ahead, and of no concern.
#[tokio::test]
async fn tokens_are_the_time_of_the_server() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let engine = cluster.engine_at(|| Timestamp::now() + Duration::from_secs(3600));
    let token = pass(&engine, &fresh_key()).await;
    let ahead = token.get().saturating_sub(as_micros_u64(clock::wall()));
    assert!(ahead < 11_000_000, "a new Lease starts ten seconds after its creation: {ahead} µs");
}

#[tokio::test]
async fn the_tokens_of_a_pruned_lock_start_above_the_floor() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let (engine, one, other, held) = (cluster.engine(), fresh_key(), fresh_key(), fresh_key());
    let mut last = Token::new(0);
    for _ in 0..3 {
        last = pass(&engine, &one).await;
    }
    pass(&engine, &other).await;
    let holder = request(&held, LONG);
    let token = acquire(&engine, &holder).await;
    assert_eq!(engine.prune(LONG, 100).await.unwrap(), 0, "no lock has been idle for this long");
    assert_eq!(engine.prune(Duration::ZERO, 1).await.unwrap(), 1);
    assert_eq!(
        engine.prune(Duration::ZERO, 100).await.unwrap(),
        1,
        "prune deletes the other idle lock and keeps the held one"
    );
    assert!(engine.read(&one).await.unwrap().is_none() && engine.read(&other).await.unwrap().is_none());
    assert!(engine.renew(&held, holder.owner.nonce, token, LONG).await.unwrap());
    assert!(pass(&engine, &one).await > last);
}

#[tokio::test]
async fn the_floor_is_raised_before_anything_is_deleted() {
    use holdoff_testbed::kubernetes::{Fault, Verb};
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    let last = pass(&engine, &key).await;
    server.inject_fault(Verb::Update, Fault::DropRequest);
    assert!(engine.prune(Duration::ZERO, 100).await.unwrap_err().is_transient());
    assert!(engine.read(&key).await.unwrap().is_some(), "the lock was not deleted");
    server.inject_fault(Verb::Delete, Fault::DropResponse);
    assert!(engine.prune(Duration::ZERO, 100).await.unwrap_err().is_transient());
    assert!(engine.read(&key).await.unwrap().is_none());
    assert!(super::super::admin::read_floor(&engine.inner.leases).await.unwrap() >= last);
}

#[tokio::test]
async fn a_vanished_holder_is_pruned_only_after_its_lease_was_observed() {
    let (_server, cluster) = TestCluster::stand_in().await;
    // By the wall clock the lease expired long ago.
    let past = cluster.engine_at(|| Timestamp::now() - Duration::from_secs(3600));
    let key = fresh_key();
    let lease = Duration::from_millis(100);
    acquire(&past, &request(&key, lease)).await;
    let engine = cluster.engine();
    assert_eq!(
        engine.prune(Duration::ZERO, 100).await.unwrap(),
        0,
        "the lease was observed for the first time"
    );
    tokio::time::sleep(lease).await;
    assert_eq!(engine.prune(Duration::ZERO, 100).await.unwrap(), 1);
}
