//! The API of a real daemon that calls a real server.

use std::time::Duration;

use holdoff_server::{Error, Place, Server};
use serde_json::{Value, json};

use crate::bed::{Daemon, Target, call, options};

fn in_folder() -> (tempfile::TempDir, Place) {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::directory(folder.path().join("data"));
    (folder, place)
}

fn postgres() -> Place {
    let postgres = holdoff_testbed::Postgres::shared();
    Place::store(postgres.create_database("server"))
}

/// The first use of a new user, on each store.
async fn a_call_is_made_until_it_succeeds(place: Place) {
    let target = Target::start(&[503, 503]).await;
    let daemon = Daemon::start(place).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let sent = daemon.client.post(format!("{}/v1/tasks", daemon.url)).header("traceparent", trace);
    let answer = sent.json(&call("order.confirm", &target.url)).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    let taken: Value = answer.json().await.unwrap();
    assert_eq!(taken["state"], "running");
    assert_eq!(place, format!("/v1/tasks/{}", taken["id"].as_str().unwrap()));

    let task = daemon.until_over(taken["id"].as_str().unwrap()).await;
    assert_eq!(task["state"], "succeeded");
    assert_eq!(task["steps"][0]["failures"], 2);
    assert_eq!(task["steps"][0]["output"], json!({ "status": 200, "body": "thank you" }));
    assert_eq!(task["steps"][0].get("payload"), None);
    let outcomes: Vec<_> =
        task["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].as_str()).collect();
    assert_eq!(outcomes, [Some("retried"), Some("retried")]);
    assert!(task["attempts"][0]["message"].as_str().unwrap().contains("503"), "{task:#}");

    let calls = target.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|(_, body)| body == r#"{"n":1.5}"#), "the digits stay: {calls:?}");
    let traces = calls.iter().map(|(headers, _)| headers["traceparent"].to_str().unwrap());
    assert!(
        traces.clone().all(|sent| sent.contains("0af7651916cd43dd8448eb211c80319c")),
        "the trace goes on"
    );
    daemon.server.shutdown().await;
}

/// The daemon stops while a step waits for its response. The next daemon makes the call, and no attempt is used up.
async fn a_stop_burns_no_attempt(place: Place) {
    let target = Target::start(&[]).await;
    let mut impatient = options(place.clone());
    impatient.patience = Duration::from_millis(50);
    let daemon = Daemon::start_with(impatient).await;
    let id = daemon.submit(&call("slow", &target.slow_url())).await;
    target.called(1).await;
    daemon.server.shutdown().await;

    let again = Daemon::start(place).await;
    target.called(2).await;
    let task = again.task(&id).await;
    assert_eq!(task["steps"][0]["state"], "running", "{task:#}");
    assert_eq!(task["steps"][0]["failures"], 0, "{task:#}");
    assert_eq!(task["attempts"][0]["outcome"], "shutdown", "{task:#}");
    drop(again);
}

#[tokio::test]
async fn a_call_is_made_until_it_succeeds_from_sqlite() {
    let (_folder, place) = in_folder();
    a_call_is_made_until_it_succeeds(place).await;
}

#[tokio::test]
async fn a_call_is_made_until_it_succeeds_from_postgres() {
    a_call_is_made_until_it_succeeds(postgres()).await;
}

#[tokio::test]
async fn a_stop_burns_no_attempt_in_sqlite() {
    let (_folder, place) = in_folder();
    a_stop_burns_no_attempt(place).await;
}

#[tokio::test]
async fn a_stop_burns_no_attempt_in_postgres() {
    a_stop_burns_no_attempt(postgres()).await;
}

#[tokio::test]
async fn steps_come_after_each_other_and_payloads_are_shown_to_who_asks() {
    let (_folder, place) = in_folder();
    let target = Target::start(&[]).await;
    let daemon = Daemon::start(place).await;
    let id = daemon
        .submit(&json!({ "namespace": "shop", "steps": [
            { "name": "charge", "operation": "card.charge", "http": { "url": target.url }, "queue": "money" },
            { "name": "ship", "operation": "parcel.ship", "payload": { "kg": 2 }, "after": ["charge"],
              "priority": 1, "delay": "1s", "policy": "background" },
        ] }))
        .await;
    let task = daemon.until(&id, |task| task["steps"][1]["state"] == "ready").await;
    assert_eq!(task["steps"][0]["state"], "succeeded");
    assert_eq!(task["steps"][0]["queue"], "money");
    let ship = &task["steps"][1];
    assert_eq!(
        (&ship["name"], &ship["namespace"], &ship["priority"]),
        (&json!("ship"), &json!("shop"), &json!(1))
    );
    assert_eq!(ship["policy"], "background");
    let shown: Value = daemon.get(&format!("/v1/tasks/{id}?payloads=true")).await.json().await.unwrap();
    assert_eq!(shown["steps"][1]["payload"], json!({ "kg": 2 }));
}

#[tokio::test]
async fn the_same_key_is_the_same_task() {
    let (_folder, place) = in_folder();
    let daemon = Daemon::start(place).await;
    let task =
        json!({ "operation": "mail.send", "payload": "hello", "dedup": "welcome", "dedup_retention": "1h" });
    let id = daemon.submit(&task).await;
    let again = daemon.post(&task).await;
    assert_eq!(again.status(), 200);
    let answer: Value = again.json().await.unwrap();
    assert_eq!(answer, json!({ "id": id, "state": "running", "duplicate": true }));

    let several = daemon.post(&json!([task, { "operation": "mail.send" }])).await;
    assert_eq!(several.status(), 201);
    let answers: Value = several.json().await.unwrap();
    assert_eq!(answers[0]["duplicate"], true);
    assert_eq!(answers[1].get("duplicate"), None);
}

#[tokio::test]
async fn only_loopback_is_listened_on_and_a_taken_port_is_named() {
    let (_folder, place) = in_folder();
    let mut open = options(place.clone());
    open.listen = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(Server::start(open).await, Err(Error::NotLoopback(_))));

    let daemon = Daemon::start(place.clone()).await;
    let mut taken = options(place);
    taken.listen = daemon.server.address();
    let error = Server::start(taken).await.unwrap_err().to_string();
    assert!(error.contains("Another holdoff may be running there"), "{error}");
}
