//! The simulated API server behaves like the measured real one, and injects faults on request.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use holdoff_testbed::kubernetes::{Fault, Kubernetes, Verb, check_api_rules, real_cluster};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};

fn named(name: &str) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.name = Some(name.to_owned());
    lease
}

#[tokio::test]
async fn the_simulated_server_follows_the_api_rules() {
    let kubernetes = Kubernetes::start().await;
    check_api_rules(kubernetes.client(), "default").await;
}

#[tokio::test]
async fn a_real_cluster_follows_the_api_rules() {
    let Some((client, namespace)) = real_cluster().await else {
        return holdoff_testbed::skip("there is no Kubernetes cluster");
    };
    check_api_rules(client, &namespace).await;
}

#[tokio::test]
async fn injected_faults_affect_the_next_request() {
    let kubernetes = Kubernetes::start().await;
    let leases = &Api::<Lease>::namespaced(kubernetes.client(), "default");
    let create = |name| async move { leases.create(&PostParams::default(), &named(name)).await };

    kubernetes.inject_fault(Verb::Create, Fault::DropRequest);
    assert!(create("a").await.is_err());
    assert!(leases.get_opt("a").await.unwrap().is_none(), "a dropped request creates no object");

    kubernetes.inject_fault(Verb::Create, Fault::DropResponse);
    assert!(create("a").await.is_err());
    assert!(
        leases.get_opt("a").await.unwrap().is_some(),
        "a request whose response is dropped creates the object"
    );

    for code in [429, 500, 503] {
        kubernetes.inject_fault(Verb::Get, Fault::Refuse { code, retry_after: Some(1) });
        match leases.get("a").await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, code),
            other => panic!("{other:?}"),
        }
    }

    for fault in [Fault::Hang, Fault::Stall] {
        kubernetes.inject_fault(Verb::Create, fault);
        let request = tokio::time::timeout(Duration::from_millis(100), create("b")).await;
        assert!(request.is_err(), "no answer");
        assert!(leases.get_opt("b").await.unwrap().is_none());
    }
    kubernetes.release_stalled().await;
    assert!(
        leases.get_opt("b").await.unwrap().is_some(),
        "a stalled request is executed when it is released"
    );
    assert_eq!(kubernetes.pending_faults(), 0);
}

#[tokio::test]
async fn watches_are_cut_bookmarked_and_expired() {
    let kubernetes = Kubernetes::start().await;
    let leases: Api<Lease> = Api::namespaced(kubernetes.client(), "default");
    leases.create(&PostParams::default(), &named("a")).await.unwrap();
    let list = leases.list(&ListParams::default()).await.unwrap();
    let since = list.metadata.resource_version.unwrap();
    let mut events = leases.watch(&WatchParams::default(), &since).await.unwrap().boxed();
    kubernetes.wait_for_watches(1).await;
    kubernetes.bookmark();
    match events.try_next().await.unwrap().unwrap() {
        WatchEvent::Bookmark(bookmark) => assert_eq!(bookmark.metadata.resource_version, since),
        other => panic!("{other:?}"),
    }
    kubernetes.cut_watches();
    assert!(!matches!(events.try_next().await, Ok(Some(_))));
    kubernetes.wait_for_watches(0).await;

    kubernetes.forget_history();
    let mut events = leases.watch(&WatchParams::default(), &since).await.unwrap().boxed();
    match events.try_next().await.unwrap().unwrap() {
        WatchEvent::Error(status) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
        other => panic!("{other:?}"),
    }
    // Without a version, a watch begins with all existing objects.
    let mut events = leases.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(events.try_next().await.unwrap().unwrap(), WatchEvent::Added(_)));
    drop(events);
    kubernetes.wait_for_watches(0).await;
}

#[tokio::test]
async fn namespaces_are_separate() {
    let kubernetes = Kubernetes::start().await;
    let [one, other] = ["one", "other"].map(|name| Api::<Lease>::namespaced(kubernetes.client(), name));
    one.create(&PostParams::default(), &named("a")).await.unwrap();
    assert!(other.get_opt("a").await.unwrap().is_none());
    assert_eq!(other.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(one.list(&ListParams::default()).await.unwrap().items.len(), 1);
}
