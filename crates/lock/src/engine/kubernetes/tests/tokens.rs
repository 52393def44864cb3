//! Tokens grow over every change of the Leases.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::*;

#[tokio::test]
async fn a_lock_that_a_foreign_hand_deleted_goes_on_above() {
    for world in World::all().await {
        let (engine, key) = (world.engine(), fresh_key());
        let mut last = Token::new(0);
        for _ in 0..5 {
            for _ in 0..3 {
                let token = pass(&engine, &key).await;
                assert!(token > last);
                last = token;
            }
            world.leases().delete(&entry::name(key.digest()), &DeleteParams::default()).await.unwrap();
        }
        // No earlier observation is needed: a process that has never observed the lock grants a higher token, too.
        assert!(pass(&world.engine(), &key).await > last);
    }
}

#[tokio::test]
async fn a_holder_whose_lease_was_deleted_has_lost_it() {
    for world in World::all().await {
        let (engine, key) = (world.engine(), fresh_key());
        let bid = bid(&key, LONG);
        let token = acquire(&engine, &bid).await;
        world.leases().delete(&entry::name(key.digest()), &DeleteParams::default()).await.unwrap();
        assert!(!engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap());
        assert!(!engine.release(&key, bid.owner.nonce, token).await.unwrap());
        assert!(pass(&engine, &key).await > token);
    }
}

#[tokio::test]
async fn a_lock_that_was_stripped_of_what_we_wrote_goes_on_above() {
    for world in World::all().await {
        let (engine, key) = (world.engine(), fresh_key());
        let name = entry::name(key.digest());
        pass(&engine, &key).await;
        let last = pass(&engine, &key).await;
        let nothing = Patch::Merge(json!({ "metadata": { "annotations": null, "labels": null } }));
        world.leases().patch(&name, &PatchParams::default(), &nothing).await.unwrap();
        assert!(engine.read(&key).await.unwrap().is_none(), "as if never held");
        assert!(pass(&engine, &key).await > last);
        assert_eq!(engine.read(&key).await.unwrap().unwrap().key, key.readable(), "it is described again");
    }
}

#[tokio::test]
async fn a_new_era_is_above_everything() {
    let (_server, world) = World::stand_in().await;
    let (engine, other) = (world.engine(), world.engine());
    let (known, unknown, held) = (fresh_key(), fresh_key(), fresh_key());
    let before = pass(&engine, &known).await;
    let holder = bid(&held, LONG);
    let token = acquire(&engine, &holder).await;
    assert_eq!(before.era(), 0);
    let era = engine.raise_era().await.unwrap();
    assert_eq!(era, 1);
    for key in [&known, &unknown] {
        let token = pass(&other, key).await;
        assert_eq!(token.era(), 1, "{token}");
        assert!(pass(&engine, key).await > token);
    }
    assert!(engine.renew(&held, holder.owner.nonce, token, LONG).await.unwrap(), "who has one keeps it");
    engine.release(&held, holder.owner.nonce, token).await.unwrap();
    assert_eq!(pass(&engine, &held).await.era(), 1);
    assert_eq!(other.raise_era().await.unwrap(), 2);
}

#[tokio::test]
async fn the_era_outlives_its_record() {
    let (_server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    pass(&engine, &key).await;
    engine.raise_era().await.unwrap();
    world.leases().delete("holdoff-record", &DeleteParams::default()).await.unwrap();
    assert_eq!(pass(&engine, &fresh_key()).await.era(), 1, "found at the locks that are left");
}

#[tokio::test]
async fn what_is_pruned_begins_above() {
    let (_server, world) = World::stand_in().await;
    let (engine, one, other, held) = (world.engine(), fresh_key(), fresh_key(), fresh_key());
    let mut last = Token::new(0);
    for _ in 0..3 {
        last = pass(&engine, &one).await;
    }
    pass(&engine, &other).await;
    let holder = bid(&held, LONG);
    let token = acquire(&engine, &holder).await;
    assert_eq!(engine.prune(LONG, 100).await.unwrap(), 0, "not idle for so long");
    assert_eq!(engine.prune(Duration::ZERO, 1).await.unwrap(), 1);
    assert_eq!(engine.prune(Duration::ZERO, 100).await.unwrap(), 1, "the other one, and not the held one");
    assert!(engine.read(&one).await.unwrap().is_none() && engine.read(&other).await.unwrap().is_none());
    assert!(engine.renew(&held, holder.owner.nonce, token, LONG).await.unwrap());
    assert!(pass(&engine, &one).await > last);
}

#[tokio::test]
async fn the_floor_is_raised_before_anything_is_deleted() {
    use holdoff_testbed::kubernetes::{Fault, Verb};
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    let last = pass(&engine, &key).await;
    server.strike(Verb::Update, Fault::DropRequest);
    assert!(engine.prune(Duration::ZERO, 100).await.unwrap_err().is_transient());
    assert!(engine.read(&key).await.unwrap().is_some(), "nothing was deleted");
    server.strike(Verb::Delete, Fault::LoseAnswer);
    assert!(engine.prune(Duration::ZERO, 100).await.unwrap_err().is_transient());
    assert!(engine.read(&key).await.unwrap().is_none());
    assert!(super::super::era::read(&engine.inner.leases).await.unwrap().floor >= last);
}

#[tokio::test]
async fn a_vanished_holder_is_pruned_only_by_one_that_has_watched_it() {
    let (_server, world) = World::stand_in().await;
    // By the wall clock the lease expired long ago.
    let past = world.engine_at(|| Timestamp::now() - Duration::from_secs(3600));
    let key = fresh_key();
    let lease = Duration::from_millis(100);
    acquire(&past, &bid(&key, lease)).await;
    let engine = world.engine();
    assert_eq!(engine.prune(Duration::ZERO, 100).await.unwrap(), 0, "seen for the first time");
    tokio::time::sleep(lease).await;
    assert_eq!(engine.prune(Duration::ZERO, 100).await.unwrap(), 1);
}
