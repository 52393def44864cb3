//! Tokens grow over every change of the Leases.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::*;

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

#[tokio::test]
async fn tokens_of_a_new_epoch_are_above_all_earlier_tokens() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let (engine, other) = (cluster.engine(), cluster.engine());
    let (known, unknown, held) = (fresh_key(), fresh_key(), fresh_key());
    let before = pass(&engine, &known).await;
    let holder = request(&held, LONG);
    let token = acquire(&engine, &holder).await;
    assert_eq!(before.epoch(), 0);
    let epoch = engine.bump_epoch().await.unwrap();
    assert_eq!(epoch, 1);
    for key in [&known, &unknown] {
        let token = pass(&other, key).await;
        assert_eq!(token.epoch(), 1, "{token}");
        assert!(pass(&engine, key).await > token);
    }
    assert!(engine.renew(&held, holder.owner.nonce, token, LONG).await.unwrap(), "a held lock stays held");
    engine.release(&held, holder.owner.nonce, token).await.unwrap();
    assert_eq!(pass(&engine, &held).await.epoch(), 1);
    assert_eq!(other.bump_epoch().await.unwrap(), 2);
}

#[tokio::test]
async fn the_epoch_survives_the_deletion_of_its_record() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    pass(&engine, &key).await;
    engine.bump_epoch().await.unwrap();
    cluster.leases().delete("holdoff-record", &DeleteParams::default()).await.unwrap();
    assert_eq!(pass(&engine, &fresh_key()).await.epoch(), 1, "the remaining locks record the epoch");
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
    assert!(super::super::admin::read_token_base(&engine.inner.leases).await.unwrap().floor >= last);
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
