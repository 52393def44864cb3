//! Changes as server-sent events.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::time::Duration;

use holdoff_server::StoreUrl;
use reqwest::Response;
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};

use crate::support::{Daemon, Stores, answer, on_both_stores};

/// A listener.
struct Listener {
    response: Response,
    text: String,
}

impl Listener {
    async fn new(daemon: &Daemon) -> Self {
        let response = daemon.get("/v1/events").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut listener = Self { response, text: String::new() };
        assert_eq!(listener.next().await.unwrap().0, "ready");
        listener
    }

    /// Returns the next event and its data; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let event = field("event: ").zip(field("data: "));
                let rest = rest.to_owned();
                self.text = rest;
                match event {
                    Some((name, data)) => return Some((name, serde_json::from_str(&data).unwrap())),
                    None => continue,
                }
            }
            let chunk =
                tokio::time::timeout(CONDITION_TIMEOUT, self.response.chunk()).await.unwrap().unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Reads events of this kind until one contains an item that meets the condition.
    async fn until(&mut self, kind: &str, is_so: impl Fn(&Value) -> bool) {
        loop {
            let (name, changed) = self.next().await.unwrap();
            if name == kind && changed.as_array().unwrap().iter().any(&is_so) {
                return;
            }
        }
    }
}

async fn listeners_receive_changes(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let mut listener = Listener::new(&daemon).await;
    daemon.submit(&json!({ "operation": "a" })).await;
    listener.until("steps", |step| step["operation"] == "a" && step["state"] == "ready").await;
    listener.until("queues", |lane| lane["operation"] == "a" && lane["due"].as_u64() > Some(0)).await;

    let claim = json!({ "worker": "w", "operations": ["a"] });
    let claimed = answer(daemon.send("/v1/workers/claim", &claim).await, 200).await;
    let step = claimed["items"][0].clone();
    listener.until("steps", |changed| changed["id"] == step["step"] && changed["state"] == "running").await;

    let lock = answer(daemon.send("/v1/locks/acquire", &json!({ "key": "deploy" })).await, 200).await;
    listener.until("locks", |changed| changed["key"] == "deploy" && changed["held"] == true).await;
    let held = json!({ "key": "deploy", "token": lock["token"], "lock": lock["lock"] });
    answer(daemon.send("/v1/locks/release", &held).await, 200).await;
    listener.until("locks", |changed| changed["key"] == "deploy" && changed["held"] == false).await;

    // A stopping daemon does not wait for its listeners.
    let ends = async { while listener.next().await.is_some() {} };
    tokio::join!(daemon.server.shutdown(), ends);
}

/// After `ready` a listener misses nothing: the daemon does not send it before the first poll.
#[tokio::test]
async fn ready_is_sent_after_the_first_poll() {
    let url = holdoff_testbed::Postgres::shared().create_database("server");
    let daemon = Daemon::start(StoreUrl::new(url.clone())).await;
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    lock.execute("lock table holdoff.steps in access exclusive mode").await.unwrap();
    let mut listener = Listener { response: daemon.get("/v1/events").await, text: String::new() };
    let early = tokio::time::timeout(Duration::from_millis(300), listener.next()).await;
    assert!(early.is_err(), "{early:?}");
    lock.rollback().await.unwrap();
    assert_eq!(listener.next().await.unwrap().0, "ready");
    daemon.submit(&json!({ "operation": "a" })).await;
    listener.until("steps", |step| step["operation"] == "a").await;
}

async fn a_reconnecting_listener_gets_a_reset(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let request = daemon.client.get(format!("{}/v1/events", daemon.url)).header("last-event-id", "7");
    let mut listener = Listener { response: request.send().await.unwrap(), text: String::new() };
    assert_eq!(listener.next().await.unwrap().0, "reset");
}

async fn the_number_of_listeners_is_limited(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let mut listeners = Vec::new();
    for _ in 0..256 {
        listeners.push(Listener::new(&daemon).await);
    }
    let refused = daemon.get("/v1/events").await;
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(answer(refused, 429).await["type"], "/problems/too-many-waiters");
    assert_eq!(daemon.get("/readyz").await.status(), 200);
}

on_both_stores!(
    listeners_receive_changes,
    a_reconnecting_listener_gets_a_reset,
    the_number_of_listeners_is_limited,
);
