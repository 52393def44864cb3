//! A daemon of an earlier release beside the new one, on the schema that the new one has migrated.
//!
//! `cargo xtask n-minus-one` builds the earlier release and names it in a variable. Without the variable the test is
//! skipped.

use std::path::PathBuf;

use holdoff_testbed::Postgres;

use crate::cluster::node::{HOLDOFF, Node, Target, load_task, send_load};
use crate::cluster::{FILE, TURN, all_succeed};

const VARIABLE: &str = "HOLDOFF_TEST_EARLIER";

fn earlier() -> Option<PathBuf> {
    let found = std::env::var_os(VARIABLE).map(PathBuf::from);
    if found.is_none() {
        holdoff_testbed::skip(&format!(
            "${VARIABLE} names no earlier release; from version 0.2.0 on `cargo xtask n-minus-one` builds one and runs this"
        ));
    }
    found
}

/// Sends half of the tasks to each daemon. Each daemon may run the steps of both halves.
async fn share(store: &str, nodes: &[Node], target: &Target) -> Vec<String> {
    let urls: Vec<String> = nodes.iter().map(|node| node.url.clone()).collect();
    let load = send_load(200, 200, &target.url, |number| urls[number % urls.len()].clone()).await;
    assert_eq!((load.accepted.len(), &load.refused), (200, &Vec::new()), "{}", load.summary());
    all_succeed(store, &load.accepted).await;
    load.accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_release_runs_beside_the_new_one() {
    let Some(earlier) = earlier() else { return };
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    // The new daemon migrates the store while the earlier one uses it. Afterwards the earlier daemon restarts.
    let store = Postgres::shared().create_database("upgrade");
    let target = Target::start().await;
    let old = Node::start_as(&earlier, &store, &config);
    let new = Node::start_as(HOLDOFF.as_ref(), &store, &config);
    let both = vec![old, new];
    let mut accepted = share(&store, &both, &target).await;
    let mut both = both.into_iter();
    let (old, new) = (both.next().unwrap(), both.next().unwrap());
    let both = vec![old.restart().await, new];
    accepted.extend(share(&store, &both, &target).await);
    // The new daemon finishes the steps that the earlier one leaves.
    let mut both = both.into_iter();
    let (mut old, new) = (both.next().unwrap(), both.next().unwrap());
    target.close(true);
    let (status, left) = old.post("/v1/tasks", &load_task(&target.url)).await;
    assert_eq!(status, 201, "{left}");
    old.kill();
    target.close(false);
    accepted.push(left["id"].as_str().unwrap().to_owned());
    all_succeed(&store, &accepted).await;
    println!("an earlier release beside the new one: {}", target.assert_once(&accepted));
    assert_eq!(new.terminate(), Some(0));
    for file in [FILE.to_owned(), format!("{FILE}\n[policies.own]\nextends = \"standard\"\nattempts = 3")] {
        std::fs::write(&config, file).unwrap();
        let alone = Node::start_as(&earlier, &store, &config);
        assert_eq!(alone.get("/readyz").await.0, 200, "the way back is open");
        assert_eq!(alone.terminate(), Some(0));
    }
}
