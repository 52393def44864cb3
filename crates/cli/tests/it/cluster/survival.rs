//! One of three daemons is killed under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdoff_testbed::Postgres;

use crate::cluster::node::Node;
use crate::cluster::target::Target;
use crate::cluster::{FILE, TURN, all_succeed, load, no_more_calls_than_grants};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_finishes_when_a_daemon_is_killed() {
    let _turn = TURN.lock().await;
    let (requests, per_second) = if holdoff_testbed::is_deep() { (3000, 500) } else { (600, 200) };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let store = Postgres::shared().create_database("survival");
    let target = Target::start().await;
    let mut nodes = Node::three(&store, &config);
    let urls: Vec<String> = nodes.iter().map(|node| node.url.clone()).collect();

    // Until the load balancer notices the kill, it sends a third of the tasks to the dead daemon. These get no
    // response and are not accepted.
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let whereto = move |number: usize| {
        counted.store(number, Ordering::Relaxed);
        let living = usize::from(number >= requests / 2);
        urls[living + number % (urls.len() - living)].clone()
    };
    let loading = load::send(requests, per_second, &target.url, whereto);
    let killing = async {
        while sent.load(Ordering::Relaxed) < requests / 3 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        nodes[0].kill();
    };
    let (load, ()) = tokio::join!(loading, killing);
    all_succeed(&store, &load.accepted).await;
    println!("killed under load: {}; {}", load.said(), target.assert_once(&load.accepted));
    no_more_calls_than_grants(&store, &target, &load.accepted).await;
    assert_eq!(load.refused, Vec::<String>::new());
    assert!(load.unanswered > 0, "the kill struck");
    assert!(load.accepted.len() > requests / 2, "{}", load.said());
}
