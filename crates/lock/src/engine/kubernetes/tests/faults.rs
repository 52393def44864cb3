//! Lost and delayed requests, and notifications of released locks.

use holdoff_testbed::CONDITION_TIMEOUT;
use holdoff_testbed::kubernetes::{Fault, Verb};
use kube::api::DeleteParams;

use super::*;
use crate::Error;
use crate::notify::{Notification, Subscription};

#[tokio::test]
async fn a_grant_with_a_lost_response_is_read_back_by_nonce() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    for ask_again in [false, true] {
        let request = request(&key, LONG);
        let before = pass(&engine, &key).await;
        server.inject_fault(Verb::Update, Fault::DropResponse);
        assert!(engine.try_acquire(&request).await.unwrap_err().is_transient());
        let found = engine.granted(&key, request.owner.nonce).await.unwrap().unwrap();
        assert_eq!(found.get(), before.get() + 1);
        if ask_again {
            assert_eq!(acquire(&engine, &request).await, found);
        }
        engine.withdraw(&key, request.owner.nonce).await.unwrap();
    }
}

/// A write that is in flight when its caller gives up is invalidated: it must not take the lock later.
#[tokio::test]
async fn a_withdrawn_write_in_flight_has_no_effect() {
    let (server, cluster) = TestCluster::stand_in().await;
    let engine = cluster.engine();
    for asks in [false, true] {
        let key = fresh_key();
        pass(&engine, &key).await;
        let request = request(&key, LONG);
        server.inject_fault(Verb::Update, Fault::Stall);
        assert!(engine.try_acquire(&request).await.unwrap_err().is_transient(), "the request timed out");
        if asks {
            assert_eq!(engine.granted(&key, request.owner.nonce).await.unwrap(), None);
        } else {
            engine.withdraw(&key, request.owner.nonce).await.unwrap();
        }
        server.release_stalled().await;
        assert_eq!(engine.read(&key).await.unwrap().unwrap().holder, None);
        assert!(
            engine.inner.unresolved.get(request.owner.nonce).is_none(),
            "the unresolved request was removed"
        );
    }
}

#[tokio::test]
async fn a_dropped_call_in_flight_has_no_effect() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    pass(&engine, &key).await;
    let request = request(&key, LONG);
    server.inject_fault(Verb::Update, Fault::Stall);
    tokio::select! {
        answer = engine.try_acquire(&request) => panic!("{answer:?}"),
        () = async { while server.pending_faults() > 0 { tokio::task::yield_now().await } } => {}
    }
    engine.withdraw(&key, request.owner.nonce).await.unwrap();
    server.release_stalled().await;
    assert_eq!(engine.read(&key).await.unwrap().unwrap().holder, None);
}

#[tokio::test]
async fn transient_errors_are_classified_as_transient() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
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
        server.inject_fault(Verb::Get, fault);
        let error = engine.read(&key).await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{fault:?}: {error}");
    }
    assert_eq!(server.pending_faults(), 0);
    assert!(engine.read(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn the_error_of_a_missing_permission_names_the_verb_and_the_manifest() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    server.inject_fault(Verb::Create, Fault::Refuse { code: 403, retry_after: None });
    let error = engine.try_acquire(&request(&key, LONG)).await.unwrap_err();
    assert!(matches!(error, Error::Store { transient: false, .. }));
    let message = error.to_string();
    for part in ["create", "leases", "default", "deploy/kubernetes/lock-rbac.yaml"] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[tokio::test]
async fn a_write_of_another_client_does_not_fail_a_renewal() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    let request = request(&key, LONG);
    let token = acquire(&engine, &request).await;
    let label = serde_json::json!({ "metadata": { "labels": { "team": "a" } } });
    let patch = kube::api::Patch::Merge(label);
    cluster
        .leases()
        .patch(&lease_object::name(key.digest()), &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    assert!(engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap());
    let lease = cluster.leases().get(&lease_object::name(key.digest())).await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["team"], "a", "labels of other clients stay");
}

#[tokio::test]
async fn a_renewal_and_a_release_take_one_request_each() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    pass(&engine, &key).await;
    let request = request(&key, LONG);
    let counts = || [Verb::Get, Verb::Update].map(|verb| server.requests(verb));
    let [gets, updates] = counts();
    let token = acquire(&engine, &request).await;
    assert_eq!(counts(), [gets + 1, updates + 1]);
    assert!(engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap());
    assert!(engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap());
    assert!(engine.release(&key, request.owner.nonce, token).await.unwrap());
    assert_eq!(counts(), [gets + 1, updates + 4]);
}

/// The last written version is only the first guess, also after a lost response.
#[tokio::test]
async fn a_renewal_succeeds_after_a_lost_response() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    let request = request(&key, LONG);
    let token = acquire(&engine, &request).await;
    for fault in [Fault::DropResponse, Fault::DropRequest] {
        server.inject_fault(Verb::Update, fault);
        assert!(engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap_err().is_transient());
        assert!(engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap());
    }
    cluster.engine().force_release(&key).await.unwrap().unwrap();
    assert!(!engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap());
    assert!(!engine.release(&key, request.owner.nonce, token).await.unwrap());
}

async fn next_notification(subscription: &mut Subscription) -> Notification {
    tokio::time::timeout(CONDITION_TIMEOUT, subscription.recv()).await.expect("no notification arrived")
}

/// Returns a subscription after the notification that the watch has started.
async fn listen(engine: &KubernetesStore, key: &LockKey) -> Subscription {
    let mut subscription = engine.subscribe(key);
    assert_eq!(next_notification(&mut subscription).await, Notification::MayBeFree);
    subscription
}

#[tokio::test]
async fn a_release_and_a_deletion_notify_subscribers() {
    for cluster in TestCluster::all().await {
        let (holder, listener, key) = (cluster.engine(), cluster.engine(), fresh_key());
        let request = request(&key, LONG);
        let token = acquire(&holder, &request).await;
        let mut subscription = listen(&listener, &key).await;
        holder.release(&key, request.owner.nonce, token).await.unwrap();
        assert_eq!(next_notification(&mut subscription).await, Notification::MayBeFree);
        let token = acquire(&holder, &request).await;
        cluster.leases().delete(&lease_object::name(key.digest()), &DeleteParams::default()).await.unwrap();
        assert_eq!(
            next_notification(&mut subscription).await,
            Notification::MayBeFree,
            "another client deleted the Lease object"
        );
        assert!(pass(&listener, &key).await > token);
    }
}

#[tokio::test]
async fn one_watch_serves_all_subscribers_and_ends_with_the_last() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, one, other) = (cluster.engine(), fresh_key(), fresh_key());
    let first = listen(&engine, &one).await;
    let mut second = engine.subscribe(&other);
    let request = request(&other, LONG);
    let token = acquire(&engine, &request).await;
    engine.release(&other, request.owner.nonce, token).await.unwrap();
    assert_eq!(next_notification(&mut second).await, Notification::MayBeFree);
    assert_eq!(server.requests(Verb::Watch), 1);
    server.wait_for_watches(1).await;
    drop((first, second));
    server.wait_for_watches(0).await;
    // The watch starts again with the next subscriber.
    let again = listen(&engine, &one).await;
    server.wait_for_watches(1).await;
    drop(engine);
    server.wait_for_watches(0).await;
    drop(again);
}

#[tokio::test]
async fn an_interrupted_watch_restarts_and_notifies_subscribers() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    let mut subscription = listen(&engine, &key).await;
    for fault in [None, Some(Fault::DropRequest), Some(Fault::Refuse { code: 503, retry_after: None })] {
        server.wait_for_watches(1).await;
        if let Some(fault) = fault {
            server.inject_fault(Verb::Watch, fault);
        }
        server.cut_watches();
        assert_eq!(
            next_notification(&mut subscription).await,
            Notification::MayBeFree,
            "an event may have been missed"
        );
        let request = request(&key, LONG);
        let token = acquire(&engine, &request).await;
        engine.release(&key, request.owner.nonce, token).await.unwrap();
        assert_eq!(next_notification(&mut subscription).await, Notification::MayBeFree);
    }
}

#[tokio::test]
async fn a_watch_restarts_after_its_history_was_compacted() {
    let (server, cluster) = TestCluster::stand_in().await;
    let (engine, key) = (cluster.engine(), fresh_key());
    let mut subscription = listen(&engine, &key).await;
    server.wait_for_watches(1).await;
    // The running watch learns that its history is gone: by an event, or by an error response.
    for is_event in [true, false] {
        if is_event {
            server.forget_history();
        } else {
            server.inject_fault(Verb::Watch, Fault::Refuse { code: 410, retry_after: None });
        }
        server.end_watches();
        assert_eq!(next_notification(&mut subscription).await, Notification::MayBeFree);
        server.wait_for_watches(1).await;
    }
    let request = request(&key, LONG);
    let token = acquire(&engine, &request).await;
    engine.release(&key, request.owner.nonce, token).await.unwrap();
    assert_eq!(next_notification(&mut subscription).await, Notification::MayBeFree);
}

#[tokio::test]
async fn a_watch_event_counts_as_an_observation() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let (holder, listener, key) = (cluster.engine(), cluster.engine(), fresh_key());
    let other = fresh_key();
    let mut subscription = listen(&listener, &other).await;
    let lease = Duration::from_millis(300);
    acquire(&holder, &request(&key, lease)).await;
    // A later notification: the grant has been observed by then.
    pass(&holder, &other).await;
    assert_eq!(next_notification(&mut subscription).await, Notification::MayBeFree);
    tokio::time::sleep(lease).await;
    acquire(&listener, &request(&key, lease)).await;
}
