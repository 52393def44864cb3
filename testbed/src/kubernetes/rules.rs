//! The API server's rules that the lock engine depends on, checked on any API server.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "an answer that is not as it should be ends the check"
)]

use std::future::Future;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
};
use kube::{Api, Client};
use serde_json::json;

/// The longest time that a real cluster may take to send a watch event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Checks the API server with Leases whose names begin with `rules-` in this namespace, and removes them. It
/// panics at the first response that differs from the measured behaviour of a real API server 1.36.
pub async fn check_api_rules(client: Client, namespace: &str) {
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let fresh = |name: &str| format!("rules-{name}-{}", std::process::id());
    creating(&leases, &fresh("create")).await;
    updating(&leases, &fresh("update")).await;
    patching(&leases, &fresh("patch")).await;
    deleting(&leases, &fresh("delete")).await;
    recreating(&leases, &fresh("recreate")).await;
    names(&leases).await;
    watching(&leases, &fresh("watch")).await;
    listing(&leases, &fresh("list")).await;
}

async fn creating(leases: &Api<Lease>, name: &str) {
    let lease = create(leases, name).await;
    assert!(version(&lease) > 0, "resource versions are numbers");
    assert_eq!(
        refused(leases.create(&PostParams::default(), &plain(name))).await,
        (409, "AlreadyExists".into())
    );
    let mut none = plain(name);
    none.metadata.name = Some(format!("{name}-zero"));
    none.spec.get_or_insert_default().lease_duration_seconds = Some(0);
    assert_eq!(refused(leases.create(&PostParams::default(), &none)).await, (422, "Invalid".into()));
    remove(leases, name).await;
}

async fn updating(leases: &Api<Lease>, name: &str) {
    let first = create(leases, name).await;
    let update = |lease: &Lease, holder: &str| {
        let mut lease = lease.clone();
        lease.spec.get_or_insert_default().holder_identity = Some(holder.to_owned());
        async move { leases.replace(name, &PostParams::default(), &lease).await }
    };
    let second = update(&first, "a").await.unwrap();
    assert!(version(&second) > version(&first));
    assert_eq!(refused(update(&first, "b")).await, (409, "Conflict".into()), "a stale version");
    let same = update(&second, "a").await.unwrap();
    assert_eq!(version(&same), version(&second), "an update without a change creates no version");
    let mut unversioned = second.clone();
    unversioned.metadata.resource_version = None;
    assert_eq!(refused(update(&unversioned, "c")).await, (422, "Invalid".into()), "no version");
    remove(leases, name).await;
    assert_eq!(refused(update(&second, "d")).await.0, 409, "an update does not recreate a deleted object");
}

async fn patching(leases: &Api<Lease>, name: &str) {
    let first = create(leases, name).await;
    let merge =
        |patch| async move { leases.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await };
    for holder in ["a", "b"] {
        let patched = merge(json!({ "spec": { "holderIdentity": holder } })).await.unwrap();
        assert_eq!(
            patched.spec.unwrap().holder_identity.as_deref(),
            Some(holder),
            "a patch without a version succeeds for each client"
        );
    }
    let stale = first.metadata.resource_version.unwrap();
    let patch = json!({ "metadata": { "resourceVersion": stale }, "spec": { "holderIdentity": "c" } });
    assert_eq!(refused(merge(patch.clone())).await, (409, "Conflict".into()));
    let mut apply = patch;
    apply["apiVersion"] = json!("coordination.k8s.io/v1");
    apply["kind"] = json!("Lease");
    apply["metadata"]["name"] = json!(name);
    let forced = PatchParams::apply("rules").force();
    assert_eq!(refused(leases.patch(name, &forced, &Patch::Apply(apply))).await, (409, "Conflict".into()));
    remove(leases, name).await;
}

async fn deleting(leases: &Api<Lease>, name: &str) {
    let lease = create(leases, name).await;
    let only = |uid: Option<&str>, version: Option<&str>| {
        let [uid, resource_version] = [uid, version].map(|part| part.map(ToOwned::to_owned));
        let delete = DeleteParams {
            preconditions: Some(Preconditions { resource_version, uid }),
            ..Default::default()
        };
        async move { leases.delete(name, &delete).await }
    };
    let other = "11111111-1111-4111-8111-111111111111";
    assert_eq!(refused(only(Some(other), None)).await, (409, "Conflict".into()));
    assert_eq!(refused(only(None, Some("1"))).await, (409, "Conflict".into()));
    only(lease.metadata.uid.as_deref(), lease.metadata.resource_version.as_deref()).await.unwrap();
    assert!(leases.get_opt(name).await.unwrap().is_none());
    assert_eq!(refused(leases.get(name)).await, (404, "NotFound".into()));
}

async fn recreating(leases: &Api<Lease>, name: &str) {
    let mut first = create(leases, name).await;
    first.spec.get_or_insert_default().lease_transitions = Some(7);
    let first = leases.replace(name, &PostParams::default(), &first).await.unwrap();
    leases.delete(name, &DeleteParams::default()).await.unwrap();
    let second = create(leases, name).await;
    assert!(version(&second) > version(&first) + 1, "the deletion has a version, too");
    assert_ne!(second.metadata.uid, first.metadata.uid);
    assert_eq!(second.spec.unwrap().lease_transitions.unwrap_or(0), 0);
    let stale = async { leases.replace(name, &PostParams::default(), &first).await };
    assert_eq!(refused(stale).await.0, 409, "an update of the deleted object is rejected");
    remove(leases, name).await;
}

async fn names(leases: &Api<Lease>) {
    for name in ["Lock-A", "lock_a", "a-", &"a".repeat(254)] {
        let created = async { leases.create(&PostParams::default(), &plain(name)).await };
        assert_eq!(refused(created).await, (422, "Invalid".into()), "{name}");
    }
    let longest = format!("rules-{}", "a".repeat(247));
    create(leases, &longest).await;
    remove(leases, &longest).await;
}

async fn watching(leases: &Api<Lease>, name: &str) {
    let since =
        leases.list(&ListParams::default().limit(1)).await.unwrap().metadata.resource_version.unwrap();
    let labelled = WatchParams::default().labels(&format!("rules={name}"));
    let mut events = leases.watch(&labelled, &since).await.unwrap().boxed();
    let mut lease = create(leases, name).await;
    lease.spec.get_or_insert_default().holder_identity = Some("a".to_owned());
    let lease = leases.replace(name, &PostParams::default(), &lease).await.unwrap();
    remove(leases, name).await;
    let mut last = 0;
    for kind in ["added", "modified", "deleted"] {
        let event =
            tokio::time::timeout(EVENT_TIMEOUT, events.try_next()).await.expect("an event").unwrap().unwrap();
        let (event_kind, found) = match event {
            WatchEvent::Added(lease) => ("added", lease),
            WatchEvent::Modified(lease) => ("modified", lease),
            WatchEvent::Deleted(lease) => ("deleted", lease),
            other => panic!("{other:?}"),
        };
        assert_eq!(event_kind, kind);
        assert!(version(&found) > last, "each event has a later version");
        last = version(&found);
    }
    assert!(last > version(&lease));
}

async fn listing(leases: &Api<Lease>, name: &str) {
    let names = ["a", "b", "c"].map(|end| format!("{name}-{end}"));
    for one in &names {
        let mut lease = plain(one);
        lease.metadata.labels.get_or_insert_default().insert("rules".to_owned(), name.to_owned());
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }
    let by_twos = ListParams::default().labels(&format!("rules={name}")).limit(2);
    let first = leases.list(&by_twos).await.unwrap();
    assert_eq!(first.items.len(), 2);
    let rest =
        leases.list(&by_twos.clone().continue_token(&first.metadata.continue_.unwrap())).await.unwrap();
    assert_eq!(rest.items.len(), 1);
    assert_eq!(rest.metadata.continue_.filter(|token| !token.is_empty()), None);
    for one in &names {
        remove(leases, one).await;
    }
}

fn plain(name: &str) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.name = Some(name.to_owned());
    // A label value is limited to fewer characters than a name.
    let label: String = name.chars().take(63).collect();
    lease
        .metadata
        .labels
        .get_or_insert_default()
        .insert("rules".to_owned(), label.trim_end_matches('-').to_owned());
    lease.spec = Some(LeaseSpec { lease_duration_seconds: Some(15), ..LeaseSpec::default() });
    lease
}

async fn create(leases: &Api<Lease>, name: &str) -> Lease {
    leases.create(&PostParams::default(), &plain(name)).await.unwrap()
}

async fn remove(leases: &Api<Lease>, name: &str) {
    leases.delete(name, &DeleteParams::default()).await.unwrap();
}

fn version(lease: &Lease) -> u64 {
    lease.metadata.resource_version.as_ref().unwrap().parse().unwrap()
}

async fn refused<T>(call: impl Future<Output = kube::Result<T>>) -> (u16, String) {
    match call.await {
        Ok(_) => panic!("was not refused"),
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
        Err(error) => panic!("no answer: {error}"),
    }
}
