//! Versions of policies: one is active for all nodes of a store, and a node that differs reports it.

use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_work::{Drift, Error, Fault, Settings, Task, Work};

use crate::conformance::place::{
    HOUR, Place, attempts, claim, claimer, eventually, on_shared_stores, settings, submit,
};

/// Policies under which every operation waits exactly this number of hours.
fn hours(count: u32) -> PolicySet {
    let file = format!(
        "default = \"mine\"\n[policies.mine]\ngrowth = \"constant\"\ndelay = \"{count}h\"\ncap = \"{count}h\"\n\
         jitter = \"none\""
    );
    PolicySet::from_toml(&file).unwrap()
}

async fn join(place: &Place, own: PolicySet) -> Work {
    Work::join(&place.url, own, settings(), "a test").await.unwrap()
}

/// Returns the wait after the first failure of a submitted task.
async fn wait_of(work: &Work, task: holdoff_work::TaskId) -> Duration {
    let claimer = claimer(work, &["mail"]).await;
    claimer.fail(&claim(&claimer).await, Fault::transient("busy")).await.unwrap();
    attempts(work, task.step(0)).await[0].delay.unwrap()
}

async fn a_version_published_by_one_is_in_force_on_all(place: Place) {
    let (one, other) = (join(&place, hours(1)).await, join(&place, hours(1)).await);
    let following = {
        let other = other.clone();
        tokio::spawn(async move { other.follow().await })
    };
    let began_before = submit(&other, Task::new("mail")).await;
    assert_eq!((one.drift(), other.drift()), (None, None));

    let published = one.publish(hours(2), "Ada").await.unwrap();
    assert!(published.replaced);
    eventually("the other goes by it", async || (other.policy_version() == published.id).then_some(())).await;
    assert_eq!(wait_of(&other, began_before).await, HOUR, "work in flight keeps its version");
    let began_after = submit(&other, Task::new("mail")).await;
    assert_eq!(wait_of(&one, began_after).await, 2 * HOUR);

    let own_file = |work: &Work| matches!(work.drift(), Some(Drift::OwnFile { .. }));
    assert!(own_file(&one) && own_file(&other), "both have files that say otherwise");
    one.publish_own(hours(2), "Ada").await.unwrap();
    assert_eq!(one.drift(), None);

    let versions = one.versions().await.unwrap();
    let by = |record: &holdoff_work::VersionRecord| (record.active, record.published_by.clone().unwrap());
    assert_eq!(
        versions.iter().map(by).collect::<Vec<_>>(),
        [(true, "Ada".to_owned()), (false, "a test".to_owned())]
    );
    following.abort();
}

async fn a_start_publishes_what_the_store_has_never_seen(place: Place) {
    let first = join(&place, PolicySet::default()).await;
    assert_eq!(first.versions().await.unwrap().len(), 1, "the presets, because there is nothing else");
    let second = join(&place, hours(1)).await;
    assert_eq!((second.policies().as_ref(), second.drift()), (&hours(1), None));
    let third = join(&place, hours(2)).await;
    // A node that starts with an older file does not activate it again.
    let back = join(&place, hours(1)).await;
    assert_eq!(back.policies().as_ref(), &hours(2));
    let said = back.drift().unwrap().to_string();
    assert!(said.contains("holdoff policy apply"), "{said}");
    // A node without a file uses the active version and reports no drift.
    let plain = join(&place, PolicySet::default()).await;
    assert_eq!((plain.policies().as_ref(), plain.drift()), (&hours(2), None));
    // An operator can activate the older version explicitly.
    assert!(back.publish_own(hours(1), "a test").await.unwrap().replaced);
    third.look_at_policies().await.unwrap();
    assert_eq!(third.policies().as_ref(), &hours(1));
    assert_eq!(third.versions().await.unwrap().iter().filter(|version| version.active).count(), 1);
}

async fn what_cannot_be_used_is_not_put_in_force(place: Place) {
    let work = join(&place, hours(1)).await;
    let refused = work.publish(hours(48), "Ada").await.unwrap_err();
    assert!(matches!(refused, Error::Policies(_)) && refused.to_string().contains("stale"), "{refused}");
    assert_eq!(work.versions().await.unwrap().len(), 1, "the old one is kept");
    assert_eq!(work.policies().as_ref(), &hours(1));

    // A node with stricter settings than the deploying node continues with its own policies.
    let mut strict = Settings::default();
    strict.stale_after = HOUR;
    let strict = Work::join(&place.url, hours(1), strict, "a test").await.unwrap();
    work.publish(hours(2), "Ada").await.unwrap();
    strict.look_at_policies().await.unwrap();
    assert_eq!(strict.policies().as_ref(), &hours(1));
    assert!(matches!(strict.drift(), Some(Drift::Refused { .. })), "{:?}", strict.drift());
    work.publish(hours(1), "Ada").await.unwrap();
    strict.look_at_policies().await.unwrap();
    assert_eq!(strict.drift(), None);
}

async fn of_many_that_publish_at_once_one_is_active(place: Place) {
    let mut nodes = Vec::new();
    for _ in 0..8 {
        nodes.push(join(&place, PolicySet::default()).await);
    }
    let publishing = nodes.iter().cloned().zip(1..).map(|(node, count)| {
        tokio::spawn(async move { node.publish(hours(count), "a test").await.unwrap() })
    });
    for done in publishing.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    let versions = nodes[0].versions().await.unwrap();
    assert_eq!(versions.len(), 9);
    assert_eq!(versions.iter().filter(|version| version.active).count(), 1);
    for node in &nodes {
        node.look_at_policies().await.unwrap();
        assert_eq!(node.policy_version(), nodes[0].policy_version());
    }
}

on_shared_stores!(
    a_version_published_by_one_is_in_force_on_all,
    a_start_publishes_what_the_store_has_never_seen,
    what_cannot_be_used_is_not_put_in_force,
    of_many_that_publish_at_once_one_is_active,
);
