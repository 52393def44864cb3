//! A rolling restart of all three daemons while clients submit tasks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_testbed::Postgres;
use reqwest::Client;
use serde_json::Value;

use crate::cluster::node::Node;
use crate::cluster::target::Target;
use crate::cluster::{FILE, TURN, all_succeed, load, no_more_calls_than_grants, until};

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
    let (client, task) = (Client::new(), load::task(&target));
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
            Err(error) => panic!("a request to a daemon that is ready was lost: {error:?}"),
        };
        assert_eq!(answer.status(), 201, "a daemon that is ready takes it");
        let body: Value = answer.json().await.unwrap();
        accepted.push(body["id"].as_str().unwrap().to_owned());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_nothing_and_refuses_nobody() {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let store = Postgres::shared().create_database("restart");
    let target = Target::start().await;
    let nodes: Vec<Node> = (0..3).map(|_| Node::start_with_grace(&store, &config, GRACE)).collect();
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
        until("it is ready", async || balancer.is_ready(number)).await;
        let leaving = tokio::spawn(node.restart());
        until("it is seen leaving", async || !balancer.is_ready(number)).await;
        restarted.push(leaving.await.unwrap());
        until("it is back", async || balancer.is_ready(number)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    looking.await.unwrap();
    let mut accepted = Vec::new();
    for client in clients {
        accepted.extend(client.await.expect("no request is lost"));
    }
    all_succeed(&store, &accepted).await;
    println!("rolling restart: {} accepted; {}", accepted.len(), target.assert_once(&accepted));
    no_more_calls_than_grants(&store, &target, &accepted).await;
    assert!(accepted.len() > 100, "{}", accepted.len());
}
