//! The versions of the schema and of the policies.

use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_work::{Drift, Error, Fault, Settings, Task, Work};

use crate::conformance::test_store::{
    HOUR, TestStore, attempts, claim, claimer, eventually, execute, filter, list, on_shared_stores, policies,
    settings, submit,
};

/// Policies under which every operation waits exactly this number of hours.
fn hours(count: u32) -> PolicySet {
    let file = format!(
        "default = \"mine\"\n[policies.mine]\ngrowth = \"constant\"\ndelay = \"{count}h\"\ncap = \"{count}h\"\n\
         jitter = \"none\""
    );
    PolicySet::from_toml(&file).unwrap()
}

async fn join(store: &TestStore, own: PolicySet) -> Work {
    Work::join(&store.url, own, settings(), "a test").await.unwrap()
}

/// Returns the wait after the first failure of a submitted task.
async fn wait_of(work: &Work, task: holdoff_work::TaskId) -> Duration {
    let claimer = claimer(work, &["mail"]).await;
    claimer.fail(&claim(&claimer).await, Fault::transient("busy")).await.unwrap();
    attempts(work, task.step(0)).await[0].delay.unwrap()
}

async fn a_deployed_version_becomes_active_on_all_nodes(store: TestStore) {
    let (one, other) = (join(&store, hours(1)).await, join(&store, hours(1)).await);
    let following = {
        let other = other.clone();
        tokio::spawn(async move { other.follow_policies().await })
    };
    let began_before = submit(&other, Task::new("mail")).await;
    assert_eq!((one.drift(), other.drift()), (None, None));

    let deployed = one.deploy(hours(2), "Ada").await.unwrap();
    assert!(deployed.replaced);
    eventually("the other node has activated the deployed version", async || {
        (other.policy_version() == deployed.id).then_some(())
    })
    .await;
    assert_eq!(
        wait_of(&other, began_before).await,
        HOUR,
        "a task keeps the version with which it was submitted"
    );
    let began_after = submit(&other, Task::new("mail")).await;
    assert_eq!(wait_of(&one, began_after).await, 2 * HOUR);

    let own_file = |work: &Work| matches!(work.drift(), Some(Drift::OwnFile { .. }));
    assert!(
        own_file(&one) && own_file(&other),
        "the policy files of both nodes differ from the deployed version"
    );
    one.deploy_own(hours(2), "Ada").await.unwrap();
    assert_eq!(one.drift(), None);

    let versions = one.versions().await.unwrap();
    let by = |record: &holdoff_work::VersionRecord| (record.active, record.deployed_by.clone().unwrap());
    assert_eq!(
        versions.iter().map(by).collect::<Vec<_>>(),
        [(true, "Ada".to_owned()), (false, "a test".to_owned())]
    );
    following.abort();
}

async fn a_start_deploys_an_unseen_version(store: TestStore) {
    let first = join(&store, PolicySet::default()).await;
    assert_eq!(first.versions().await.unwrap().len(), 1, "without a policy file, the presets are deployed");
    let second = join(&store, hours(1)).await;
    assert_eq!((second.policies().as_ref(), second.drift()), (&hours(1), None));
    let third = join(&store, hours(2)).await;
    // A node that starts with an older file does not activate it again.
    let back = join(&store, hours(1)).await;
    assert_eq!(back.policies().as_ref(), &hours(2));
    let message = back.drift().unwrap().to_string();
    assert!(message.contains("holdoff policy deploy"), "{message}");
    // A node without a file uses the active version and reports no drift.
    let plain = join(&store, PolicySet::default()).await;
    assert_eq!((plain.policies().as_ref(), plain.drift()), (&hours(2), None));
    // An operator can activate the older version explicitly.
    assert!(back.deploy_own(hours(1), "a test").await.unwrap().replaced);
    third.refresh_policies().await.unwrap();
    assert_eq!(third.policies().as_ref(), &hours(1));
    assert_eq!(third.versions().await.unwrap().iter().filter(|version| version.active).count(), 1);
}

async fn an_unusable_version_is_not_activated(store: TestStore) {
    let work = join(&store, hours(1)).await;
    let refused = work.deploy(hours(48), "Ada").await.unwrap_err();
    assert!(matches!(refused, Error::Policies(_)) && refused.to_string().contains("stale"), "{refused}");
    assert_eq!(work.versions().await.unwrap().len(), 1, "the rejected version is not stored");
    assert_eq!(work.policies().as_ref(), &hours(1));

    // A node with stricter settings than the deploying node continues with its own policies.
    let mut strict = Settings::default();
    strict.stale_after = HOUR;
    let strict = Work::join(&store.url, hours(1), strict, "a test").await.unwrap();
    work.deploy(hours(2), "Ada").await.unwrap();
    strict.refresh_policies().await.unwrap();
    assert_eq!(strict.policies().as_ref(), &hours(1));
    assert!(matches!(strict.drift(), Some(Drift::Refused { .. })), "{:?}", strict.drift());
    work.deploy(hours(1), "Ada").await.unwrap();
    strict.refresh_policies().await.unwrap();
    assert_eq!(strict.drift(), None);
}

async fn one_of_many_concurrent_deployments_is_active(store: TestStore) {
    let mut nodes = Vec::new();
    for _ in 0..8 {
        nodes.push(join(&store, PolicySet::default()).await);
    }
    let deploying =
        nodes.iter().cloned().zip(1..).map(|(node, count)| {
            tokio::spawn(async move { node.deploy(hours(count), "a test").await.unwrap() })
        });
    for done in deploying.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    let versions = nodes[0].versions().await.unwrap();
    assert_eq!(versions.len(), 9);
    assert_eq!(versions.iter().filter(|version| version.active).count(), 1);
    for node in &nodes {
        node.refresh_policies().await.unwrap();
        assert_eq!(node.policy_version(), nodes[0].policy_version());
    }
}

async fn ten_nodes_open_an_empty_store_at_once(store: TestStore) {
    let mut opening = Vec::new();
    for _ in 0..10 {
        let url = store.url.clone();
        opening.push(tokio::spawn(async move { Work::open_with(&url, policies(), settings()).await }));
    }
    let mut nodes = Vec::new();
    for node in opening {
        nodes.push(node.await.unwrap().unwrap());
    }
    for node in &nodes {
        submit(node, Task::new("mail")).await;
    }
    for node in &nodes {
        assert_eq!(list(node, &filter(|_| ())).await.len(), 10, "all nodes share one schema");
        claim(&claimer(node, &["mail"]).await).await;
    }
}

async fn opening_again_changes_nothing(store: TestStore) {
    let task = submit(&store.open().await, Task::new("mail").json(&7)).await;
    for _ in 0..3 {
        let work = store.open().await;
        assert_eq!(list(&work, &filter(|_| ())).await[0].id, task.step(0));
        work.stats().await.unwrap();
    }
}

async fn an_incompatible_newer_store_is_rejected_unchanged(store: TestStore) {
    let work = store.open().await;
    submit(&work, Task::new("mail")).await;
    // A newer schema that is compatible with this version.
    execute(
        &store,
        if store.is_postgres() {
            "insert into holdoff.migrations (version, breaks_before) values (900, 1)"
        } else {
            "insert into holdoff_migrations (version, breaks_before) values (900, 1)"
        },
    )
    .await;
    assert_eq!(list(&store.open().await, &filter(|_| ())).await.len(), 1);
    // A newer schema that is not compatible.
    execute(
        &store,
        if store.is_postgres() {
            "insert into holdoff.migrations (version, breaks_before) values (901, 901)"
        } else {
            "insert into holdoff_migrations (version, breaks_before) values (901, 901)"
        },
    )
    .await;
    let refused = Work::open_with(&store.url, policies(), settings()).await.unwrap_err();
    assert!(matches!(refused, Error::NewerSchema { found: 901, .. }), "{refused}");
    assert!(refused.to_string().contains("upgrade this program"), "{refused}");
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 1, "the store is unchanged");
}

/// A node runs a step under a policy that only the submitting node has.
async fn a_step_keeps_its_policy_on_every_node(store: TestStore) {
    let submitter = store.open().await;
    let task = submit(&submitter, Task::new("mail").policy("hourly")).await;
    let other = Work::open_with(&store.url, holdoff_policy::PolicySet::default(), settings()).await.unwrap();
    let claimer = claimer(&other, &["mail"]).await;
    claimer.fail(&claim(&claimer).await, holdoff_work::Fault::transient("busy")).await.unwrap();
    let kept = crate::conformance::test_store::attempts(&other, task.step(0)).await;
    assert_eq!(kept[0].delay, Some(crate::conformance::test_store::HOUR));
    assert_eq!(crate::conformance::test_store::step(&other, task.step(0)).await.policy, "hourly");
}

on_shared_stores!(
    a_deployed_version_becomes_active_on_all_nodes,
    a_start_deploys_an_unseen_version,
    an_unusable_version_is_not_activated,
    one_of_many_concurrent_deployments_is_active,
    ten_nodes_open_an_empty_store_at_once,
    opening_again_changes_nothing,
    an_incompatible_newer_store_is_rejected_unchanged,
    a_step_keeps_its_policy_on_every_node,
);
