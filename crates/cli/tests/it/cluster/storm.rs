//! A hundred equal signals to three processes.

use std::time::{Duration, Instant};

use holdoff_testbed::Postgres;
use serde_json::json;

use crate::cluster::node::Node;
use crate::cluster::{FILE, TURN};

const SIGNALS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_signals_over_three_processes_make_one_task() {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let store = Postgres::shared().create_database("storm");
    let nodes = Node::three(&store, &config);
    let body = json!({ "fingerprint": "disk full", "task": { "operation": "page.somebody" } });
    let asked: Vec<_> = (0..SIGNALS)
        .map(|number| {
            let node = &nodes[number % nodes.len()];
            let request = node.client.post(format!("{}/v1/signals", node.url)).json(&body);
            tokio::spawn(async move {
                let began = Instant::now();
                let answer = request.send().await.unwrap();
                let status = answer.status().as_u16();
                (status, answer.json::<serde_json::Value>().await.unwrap(), began.elapsed())
            })
        })
        .collect();
    let (mut counts, mut tasks, mut created, mut slowest) = (Vec::new(), Vec::new(), 0, Duration::ZERO);
    for answer in asked {
        let (status, answer, took) = answer.await.unwrap();
        assert_eq!(status, if answer["created"] == true { 201 } else { 200 }, "{answer}");
        created += usize::from(status == 201);
        counts.push(answer["occurrences"].as_u64().unwrap());
        tasks.push(answer["task"].as_str().unwrap().to_owned());
        slowest = slowest.max(took);
    }
    println!("storm over three processes: the slowest answer took {slowest:?}");
    counts.sort_unstable();
    assert_eq!(counts, (1..=SIGNALS as u64).collect::<Vec<_>>(), "each is counted, and once");
    tasks.dedup();
    assert_eq!((created, tasks.len()), (1, 1), "one task, and all are told of it");
}
