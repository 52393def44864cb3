//! Three daemons on one Postgres, directly or through a pooler: one is killed under load, all are restarted in turn, and all receive equal signals.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};

use crate::cluster::node::{Node, Target, load_task, send_load};
use crate::cluster::{FILE, TURN, all_succeed, no_more_calls_than_grants, on_each_way_to_postgres, until};

async fn accepted_tasks_finish_when_a_daemon_is_killed(store: &str) {
    let _turn = TURN.lock().await;
    let (requests, per_second) = if holdoff_testbed::is_deep() { (3000, 500) } else { (600, 200) };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let target = Target::start().await;
    let mut nodes = Node::three(store, &config);
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
    let loading = send_load(requests, per_second, &target.url, whereto);
    let killing = async {
        while sent.load(Ordering::Relaxed) < requests / 3 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        nodes[0].kill();
    };
    let (load, ()) = tokio::join!(loading, killing);
    all_succeed(store, &load.accepted).await;
    println!("killed under load: {}; {}", load.summary(), target.assert_once(&load.accepted));
    no_more_calls_than_grants(store, &target, &load.accepted).await;
    assert_eq!(load.refused, Vec::<String>::new());
    assert!(load.unanswered > 0, "the kill interrupted at least one request");
    assert!(load.accepted.len() > requests / 2, "{}", load.summary());
}

/// The time in which a daemon that shuts down is seen as not ready.
const GRACE: &str = "5s";
const CLIENTS: usize = 8;

/// Tracks the ready daemons by polling, as a load balancer does.
struct Balancer {
    urls: Vec<String>,
    ready: Mutex<Vec<bool>>,
}

impl Balancer {
    async fn look(&self, client: &Client) {
        let ask = async |number: usize| {
            let answer = client.get(format!("{}/readyz", self.urls[number])).send().await;
            self.ready.lock().unwrap()[number] = answer.is_ok_and(|answer| answer.status() == 200);
        };
        tokio::join!(ask(0), ask(1), ask(2));
    }

    fn pick(&self, number: usize) -> Option<&str> {
        let ready = self.ready.lock().unwrap();
        let count = self.urls.len();
        (0..count).map(|step| (number + step) % count).find(|at| ready[*at]).map(|at| self.urls[at].as_str())
    }

    fn is_ready(&self, number: usize) -> bool {
        self.ready.lock().unwrap()[number]
    }
}

/// Submits tasks one after another to ready daemons. It retries only if a connection was refused.
async fn client(balancer: Arc<Balancer>, target: String, is_over: Arc<AtomicBool>) -> Vec<String> {
    let (client, task) = (Client::new(), load_task(&target));
    let (mut accepted, mut number) = (Vec::new(), 0);
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let Some(url) = balancer.pick(number) else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let answer = match client.post(format!("{url}/v1/tasks")).json(&task).send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => continue,
            Err(error) => panic!("a request to a ready daemon was lost: {error:?}"),
        };
        assert_eq!(answer.status(), 201, "a ready daemon accepts the task");
        let body: Value = answer.json().await.unwrap();
        accepted.push(body["id"].as_str().unwrap().to_owned());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    accepted
}

async fn a_rolling_restart_loses_and_rejects_no_task(store: &str) {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let target = Target::start().await;
    let nodes: Vec<Node> = (0..3).map(|_| Node::start_with_grace(store, &config, GRACE)).collect();
    let urls: Vec<String> = nodes.iter().map(|node| node.url.clone()).collect();
    let balancer = Arc::new(Balancer { ready: Mutex::new(vec![false; 3]), urls });
    let is_over = Arc::new(AtomicBool::new(false));
    let looking = {
        let (balancer, is_over) = (Arc::clone(&balancer), Arc::clone(&is_over));
        tokio::spawn(async move {
            let client = Client::builder().timeout(Duration::from_secs(5)).build().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                balancer.look(&client).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(client(Arc::clone(&balancer), target.url.clone(), Arc::clone(&is_over))))
        .collect();
    let mut restarted = Vec::new();
    for (number, node) in nodes.into_iter().enumerate() {
        until("the node is ready", async || balancer.is_ready(number)).await;
        let leaving = tokio::spawn(node.restart());
        until("the balancer notices the shutdown", async || !balancer.is_ready(number)).await;
        restarted.push(leaving.await.unwrap());
        until("the node is ready again", async || balancer.is_ready(number)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    looking.await.unwrap();
    let mut accepted = Vec::new();
    for client in clients {
        accepted.extend(client.await.expect("no request is lost"));
    }
    all_succeed(store, &accepted).await;
    println!("rolling restart: {} accepted; {}", accepted.len(), target.assert_once(&accepted));
    no_more_calls_than_grants(store, &target, &accepted).await;
    assert!(accepted.len() > 100, "{}", accepted.len());
}

const SIGNALS: usize = 100;

async fn equal_signals_to_three_daemons_create_one_task(store: &str) {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let nodes = Node::three(store, &config);
    let body = json!({ "fingerprint": "disk full", "task": { "operation": "page.oncall" } });
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
    assert_eq!(counts, (1..=SIGNALS as u64).collect::<Vec<_>>(), "each signal is counted once");
    tasks.dedup();
    assert_eq!((created, tasks.len()), (1, 1), "all responses name the same task");
}

on_each_way_to_postgres!(
    accepted_tasks_finish_when_a_daemon_is_killed,
    a_rolling_restart_loses_and_rejects_no_task,
    equal_signals_to_three_daemons_create_one_task,
);
