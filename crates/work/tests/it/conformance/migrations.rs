//! Opening a store: by many nodes at once, repeatedly, and if it belongs to a newer version.

use holdoff_work::{Error, Task, Work};

use crate::conformance::place::{
    Place, claim, claimer, execute, filter, list, on_shared_stores, policies, settings, submit,
};

async fn ten_nodes_open_an_empty_store_at_once(place: Place) {
    let mut opening = Vec::new();
    for _ in 0..10 {
        let url = place.url.clone();
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
        assert_eq!(list(node, &filter(|_| ())).await.len(), 10, "they share one schema");
        claim(&claimer(node, &["mail"]).await).await;
    }
}

async fn opening_again_changes_nothing(place: Place) {
    let task = submit(&place.open().await, Task::new("mail").json(&7)).await;
    for _ in 0..3 {
        let work = place.open().await;
        assert_eq!(list(&work, &filter(|_| ())).await[0].id, task.step(0));
        work.stats().await.unwrap();
    }
}

async fn a_newer_store_is_left_alone(place: Place) {
    let work = place.open().await;
    submit(&work, Task::new("mail")).await;
    // A newer schema that is compatible with this version.
    execute(
        &place,
        if place.is_postgres() {
            "insert into holdoff.migrations (version, breaks_before) values (900, 1)"
        } else {
            "insert into holdoff_migrations (version, breaks_before) values (900, 1)"
        },
    )
    .await;
    assert_eq!(list(&place.open().await, &filter(|_| ())).await.len(), 1);
    // A newer schema that is not compatible.
    execute(
        &place,
        if place.is_postgres() {
            "insert into holdoff.migrations (version, breaks_before) values (901, 901)"
        } else {
            "insert into holdoff_migrations (version, breaks_before) values (901, 901)"
        },
    )
    .await;
    let refused = Work::open_with(&place.url, policies(), settings()).await.unwrap_err();
    assert!(matches!(refused, Error::NewerSchema { found: 901, .. }), "{refused}");
    assert!(refused.to_string().contains("upgrade this program"), "{refused}");
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 1, "nothing was changed");
}

/// A node runs a step under a policy that only the submitting node has.
async fn a_policy_travels_with_its_step(place: Place) {
    let submitter = place.open().await;
    let task = submit(&submitter, Task::new("mail").policy("hourly")).await;
    let other = Work::open_with(&place.url, holdoff_policy::PolicySet::default(), settings()).await.unwrap();
    let claimer = claimer(&other, &["mail"]).await;
    claimer.fail(&claim(&claimer).await, holdoff_work::Fault::transient("busy")).await.unwrap();
    let kept = crate::conformance::place::attempts(&other, task.step(0)).await;
    assert_eq!(kept[0].delay, Some(crate::conformance::place::HOUR));
    assert_eq!(crate::conformance::place::step(&other, task.step(0)).await.policy, "hourly");
}

on_shared_stores!(
    ten_nodes_open_an_empty_store_at_once,
    opening_again_changes_nothing,
    a_newer_store_is_left_alone,
    a_policy_travels_with_its_step,
);
