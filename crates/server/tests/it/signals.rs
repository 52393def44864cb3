//! Signals over HTTP.

use std::time::Duration;

use holdoff_lock::Locks;
use holdoff_server::StoreUrl;
use holdoff_work::Fingerprint;
use reqwest::Response;
use serde_json::{Value, json};

use crate::support::{Daemon, options};

async fn send(daemon: &Daemon, body: &Value) -> Response {
    daemon.client.post(format!("{}/v1/signals", daemon.url)).json(body).send().await.unwrap()
}

async fn taken(response: Response, status: u16) -> Value {
    let found = response.status();
    let answer: Value = response.json().await.unwrap();
    assert_eq!(found, status, "{answer}");
    answer
}

fn signal(fingerprint: &str) -> Value {
    json!({ "fingerprint": fingerprint, "task": { "operation": "page.operator", "payload": { "n": 1 } } })
}

fn lock_of(fingerprint: &str) -> String {
    format!("signal:{}", Fingerprint::of(["text", fingerprint]))
}

#[tokio::test]
async fn the_first_signal_creates_a_task_and_later_ones_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(StoreUrl::in_directory(folder.path())).await;
    let first = send(&daemon, &signal("a")).await;
    let location = first.headers()["location"].to_str().unwrap().to_owned();
    let first = taken(first, 201).await;
    assert_eq!(first, json!({ "task": first["task"], "created": true, "occurrences": 1 }));
    assert_eq!(location, format!("/v1/tasks/{}", first["task"].as_str().unwrap()));
    let second = taken(send(&daemon, &signal("a")).await, 200).await;
    assert_eq!(second, json!({ "task": first["task"], "created": false, "occurrences": 2 }));
    assert_ne!(taken(send(&daemon, &signal("b")).await, 201).await["task"], first["task"]);
    let mut elsewhere = signal("a");
    elsewhere["namespace"] = json!("eu");
    assert_ne!(taken(send(&daemon, &elsewhere).await, 201).await["task"], first["task"]);

    let of = |host: &str, at: u64| {
        json!({ "fields": ["host", "what"], "data": { "host": host, "what": "disk", "at": at },
                "task": { "operation": "page.operator" } })
    };
    let one = taken(send(&daemon, &of("h1", 1)).await, 201).await;
    assert_eq!(taken(send(&daemon, &of("h1", 2)).await, 200).await["task"], one["task"]);
    taken(send(&daemon, &of("h2", 1)).await, 201).await;
    let metrics = daemon.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("holdoff_server_signals_total{outcome=\"created\"}"), "{metrics}");
    assert!(metrics.contains("# HELP holdoff_lock_acquisitions_total"), "{metrics}");
}

#[tokio::test]
async fn invalid_submissions_name_the_problem() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let task = json!({ "operation": "a" });
    for (body, kind, expected) in [
        (json!({ "task": task }), "invalid-signal", "expected `fingerprint`"),
        (json!({ "fingerprint": "a" }), "invalid-signal", "missing field `task`"),
        (
            json!({ "fields": ["x", "y"], "data": { "z": 1 }, "task": task }),
            "invalid-signal",
            "data has no `x`, `y`",
        ),
        (
            json!({ "fingerprint": "a", "task": { "operation": "a", "after": 1 } }),
            "invalid-signal",
            "task.after",
        ),
        (json!({ "fingerprint": "a", "task": { "operation": "" } }), "invalid-task", "operation"),
    ] {
        let response = send(&daemon, &body).await;
        assert_eq!(response.status(), 400, "{body}");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["type"], format!("/problems/{kind}"), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{problem}");
    }
    let plain = daemon.client.post(format!("{}/v1/signals", daemon.url)).body("{}").send().await.unwrap();
    assert_eq!(plain.status(), 415);
}

#[tokio::test]
async fn waiters_beyond_the_limit_get_a_retry_after() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(StoreUrl::in_directory(folder.path()));
    options.settings.signals.max_waiters = 2;
    options.settings.signals.wait = Duration::from_secs(1);
    let locks = Locks::memory();
    options.locks = Some(locks.clone());
    let daemon = Daemon::start_with(options).await;
    let held = locks.acquire(lock_of("a")).await.unwrap();
    let body = signal("a");
    let answers = futures(&daemon, &body, 5).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status() == 429).collect();
    assert_eq!(refused.len(), 3);
    for answer in refused {
        let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=10).contains(&seconds));
    }
    // The other two did not acquire the lock in time and created the task without it: one of them succeeded.
    assert_eq!(answers.iter().filter(|answer| answer.status() == 201).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status() == 200).count(), 1);
    held.release().await.unwrap();
}

async fn futures(daemon: &Daemon, body: &Value, count: usize) -> Vec<Response> {
    let asked: Vec<_> = (0..count)
        .map(|_| {
            let request = daemon.client.post(format!("{}/v1/signals", daemon.url)).json(body);
            tokio::spawn(async move { request.send().await.unwrap() })
        })
        .collect();
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.await.unwrap());
    }
    answers
}

/// A client that disconnects stops waiting and creates nothing.
#[tokio::test]
async fn a_disconnected_client_stops_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let place = StoreUrl::in_directory(folder.path());
    let daemon = Daemon::start(place.clone()).await;
    let elsewhere = Locks::open(place.as_str()).await.unwrap();
    let held = elsewhere.acquire(lock_of("a")).await.unwrap();
    let waiting = || async { elsewhere.inspect(lock_of("a")).await.unwrap().map_or(0, |lock| lock.waiting) };

    let request = daemon.client.post(format!("{}/v1/signals", daemon.url)).json(&signal("a"));
    let asked = tokio::spawn(request.send());
    until(async || waiting().await == 1).await;
    asked.abort();
    until(async || waiting().await == 0).await;
    held.release().await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let later = taken(send(&daemon, &signal("a")).await, 201).await;
    assert_eq!(
        later["occurrences"], 1,
        "a signal whose request was cancelled creates no task and is not counted"
    );
}

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(holdoff_testbed::CONDITION_TIMEOUT, look).await.unwrap();
}
