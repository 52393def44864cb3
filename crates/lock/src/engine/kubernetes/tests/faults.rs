//! Lost and delayed requests.

use holdoff_testbed::kubernetes::{Fault, Verb};

use super::*;
use crate::Error;

#[tokio::test]
async fn a_lost_answer_is_found_by_its_nonce() {
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    for ask_again in [false, true] {
        let bid = bid(&key, LONG);
        let before = pass(&engine, &key).await;
        server.strike(Verb::Update, Fault::LoseAnswer);
        assert!(engine.try_acquire(&bid).await.unwrap_err().is_transient());
        let found = engine.granted(&key, bid.owner.nonce).await.unwrap().unwrap();
        assert_eq!(found.get(), before.get() + 1);
        if ask_again {
            assert_eq!(acquire(&engine, &bid).await, found);
        }
        engine.withdraw(&key, bid.owner.nonce).await.unwrap();
    }
}

/// A write that is in flight when its caller gives up is invalidated: it must not take the lock later.
#[tokio::test]
async fn what_was_withdrawn_does_not_arrive_later() {
    let (server, world) = World::stand_in().await;
    let engine = world.engine();
    for asks in [false, true] {
        let key = fresh_key();
        pass(&engine, &key).await;
        let bid = bid(&key, LONG);
        server.strike(Verb::Update, Fault::Stall);
        assert!(engine.try_acquire(&bid).await.unwrap_err().is_transient(), "no answer");
        if asks {
            assert_eq!(engine.granted(&key, bid.owner.nonce).await.unwrap(), None);
        } else {
            engine.withdraw(&key, bid.owner.nonce).await.unwrap();
        }
        server.let_through().await;
        assert_eq!(engine.read(&key).await.unwrap().unwrap().holder, None);
        assert!(engine.inner.unsure.version(bid.owner.nonce).is_none(), "nothing is kept of it");
    }
}

#[tokio::test]
async fn a_call_that_was_dropped_half_way_is_outrun_too() {
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    pass(&engine, &key).await;
    let bid = bid(&key, LONG);
    server.strike(Verb::Update, Fault::Stall);
    tokio::select! {
        answer = engine.try_acquire(&bid) => panic!("{answer:?}"),
        () = async { while server.faults_left() > 0 { tokio::task::yield_now().await } } => {}
    }
    engine.withdraw(&key, bid.owner.nonce).await.unwrap();
    server.let_through().await;
    assert_eq!(engine.read(&key).await.unwrap().unwrap().holder, None);
}

#[tokio::test]
async fn what_may_pass_by_itself_is_said_to() {
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    let refuse = |code| Fault::Refuse { code, retry_after: Some(1) };
    let faults = [
        (Fault::DropRequest, true),
        (Fault::Hang, true),
        (refuse(429), true),
        (refuse(500), true),
        (refuse(503), true),
        (refuse(504), true),
        (refuse(401), false),
    ];
    for (fault, is_transient) in faults {
        server.strike(Verb::Get, fault);
        let error = engine.read(&key).await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{fault:?}: {error}");
    }
    assert_eq!(server.faults_left(), 0);
    assert!(engine.read(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn a_missing_permission_is_named_with_its_cure() {
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    server.strike(Verb::Create, Fault::Refuse { code: 403, retry_after: None });
    let error = engine.try_acquire(&bid(&key, LONG)).await.unwrap_err();
    assert!(matches!(error, Error::Store { transient: false, .. }));
    let said = error.to_string();
    for part in ["create", "leases", "default", "deploy/kubernetes/lock-rbac.yaml"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[tokio::test]
async fn a_foreign_write_between_is_no_failure() {
    let (_server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    let bid = bid(&key, LONG);
    let token = acquire(&engine, &bid).await;
    let label = serde_json::json!({ "metadata": { "labels": { "team": "a" } } });
    let patch = kube::api::Patch::Merge(label);
    world
        .leases()
        .patch(&entry::name(key.digest()), &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    assert!(engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap());
    let lease = world.leases().get(&entry::name(key.digest())).await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["team"], "a", "what others wrote stays");
}

#[tokio::test]
async fn renewing_and_letting_go_are_one_request_each() {
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    pass(&engine, &key).await;
    let bid = bid(&key, LONG);
    let counts = || [Verb::Get, Verb::Update].map(|verb| server.requests(verb));
    let [gets, updates] = counts();
    let token = acquire(&engine, &bid).await;
    assert_eq!(counts(), [gets + 1, updates + 1]);
    assert!(engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap());
    assert!(engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap());
    assert!(engine.release(&key, bid.owner.nonce, token).await.unwrap());
    assert_eq!(counts(), [gets + 1, updates + 4]);
}

/// The last written version is only the first guess, also after a lost response.
#[tokio::test]
async fn a_renewal_whose_answer_was_lost_is_made_again() {
    let (server, world) = World::stand_in().await;
    let (engine, key) = (world.engine(), fresh_key());
    let bid = bid(&key, LONG);
    let token = acquire(&engine, &bid).await;
    for fault in [Fault::LoseAnswer, Fault::DropRequest] {
        server.strike(Verb::Update, fault);
        assert!(engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap_err().is_transient());
        assert!(engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap());
    }
    world.engine().force_release(&key).await.unwrap().unwrap();
    assert!(!engine.renew(&key, bid.owner.nonce, token, LONG).await.unwrap());
    assert!(!engine.release(&key, bid.owner.nonce, token).await.unwrap());
}
