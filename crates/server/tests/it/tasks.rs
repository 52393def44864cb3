//! Tasks over the API of a real daemon that calls a real server: submission, retries, listing, cancellation, and
//! repeated submission under the same key.

use std::time::Duration;

use holdoff_server::{Error, Server, StoreUrl};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{Daemon, Stores, Target, answer, call, on_both_stores, options};

/// Returns the ids of all tasks that match, in pages of this size.
async fn all(daemon: &Daemon, query: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = answer(daemon.get(&format!("/v1/tasks?limit={limit}{query}{cursor}")).await, 200).await;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit);
        ids.extend(items.iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { return ids };
        cursor = format!("&cursor={next}");
    }
}

async fn tasks_are_listed_in_pages(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let mut ids = Vec::new();
    for number in 0..7 {
        let namespace = if number < 2 { "elsewhere" } else { "default" };
        ids.push(daemon.submit(&json!({ "operation": "a", "namespace": namespace, "delay": "1h" })).await);
    }
    ids.reverse();
    for limit in [1, 3, 100] {
        assert_eq!(all(&daemon, "", limit).await, ids);
        assert_eq!(all(&daemon, "&state=running&operation=a", limit).await, ids);
        assert_eq!(all(&daemon, "&namespace=elsewhere", limit).await, ids[5..]);
        assert!(all(&daemon, "&state=failed", limit).await.is_empty());
        assert!(all(&daemon, "&operation=b", limit).await.is_empty());
    }
    let page = answer(daemon.get("/v1/tasks?limit=1").await, 200).await;
    assert_eq!(page["items"][0]["steps"], json!({ "ready": 1 }));
    for wrong in
        ["cursor=x", "cursor=!", "limit=0", "limit=1001", "limit=x", "state=x", "older_than=99999d", "a=b"]
    {
        let problem = answer(daemon.get(&format!("/v1/tasks?{wrong}")).await, 400).await;
        assert_eq!(problem["type"], "/problems/invalid-query", "{wrong}");
    }
}

/// A namespace cannot hold the places of HTTP steps for as long as it likes.
#[tokio::test]
async fn a_timeout_above_the_maximum_is_refused() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let http = |timeout: &str| json!({ "operation": "a", "delay": "1h", "http": { "url": "http://h/", "timeout": timeout } });
    let refused = answer(daemon.post(&http("1h")).await, 400).await;
    assert_eq!(refused["type"], "/problems/invalid-task");
    assert!(refused["detail"].as_str().unwrap().contains("http.max_timeout"), "{refused}");
    daemon.submit(&http("5m")).await;
}

async fn a_task_is_cancelled(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let id = daemon.submit(&json!({ "operation": "a", "delay": "1h" })).await;
    for count in [1, 0] {
        let cancelled = daemon.send(&format!("/v1/tasks/{id}/cancel"), &json!({})).await;
        assert_eq!(answer(cancelled, 200).await, json!({ "count": count }));
    }
    assert_eq!(daemon.task(&id).await["state"], "cancelled");
    let unknown = "/v1/tasks/00000000-0000-0000-0000-000000000000/cancel";
    assert_eq!(answer(daemon.send(unknown, &json!({})).await, 404).await["type"], "/problems/no-such-task");
}

async fn an_idempotency_key_is_accepted_once(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let send = async |key: &str, body: &Value| {
        let request = daemon.client.post(format!("{}/v1/tasks", daemon.url)).header("idempotency-key", key);
        request.json(body).send().await.unwrap()
    };
    let body = json!({ "operation": "a", "payload": 1, "delay": "1h" });
    let first = answer(send("order 17", &body).await, 201).await;
    let again = answer(send("order 17", &body).await, 200).await;
    assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));

    let other = json!({ "operation": "a", "payload": 2, "delay": "1h" });
    let refused = answer(send("order 17", &other).await, 422).await;
    assert_eq!(refused["type"], "/problems/key-reused");
    assert_ne!(answer(send("order 18", &other).await, 201).await["id"], first["id"]);
    assert_eq!(all(&daemon, "", 100).await.len(), 2);

    let with_key = json!({ "operation": "a", "dedup": "mine" });
    for (key, body) in [("k", json!([body])), ("k", with_key), ("", body.clone()), (&*"k".repeat(151), body)]
    {
        let status = send(key, &body).await.status();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{key}: {body}");
    }
}

on_both_stores!(tasks_are_listed_in_pages, a_task_is_cancelled, an_idempotency_key_is_accepted_once,);

fn in_folder() -> (tempfile::TempDir, StoreUrl) {
    let folder = tempfile::tempdir().unwrap();
    let place = StoreUrl::in_directory(folder.path().join("data"));
    (folder, place)
}

fn postgres() -> StoreUrl {
    let postgres = holdoff_testbed::Postgres::shared();
    StoreUrl::new(postgres.create_database("server"))
}

/// The first use of a new user, on each store.
async fn an_http_step_is_retried_until_it_succeeds(place: StoreUrl) {
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
    assert_eq!((task["steps"][0].get("output"), task["steps"][0].get("payload")), (None, None));
    let whole = self::answer(daemon.get(&format!("{place}?payloads=true")).await, 200).await;
    assert_eq!(whole["steps"][0]["output"], json!({ "status": 200, "body": "thank you" }));
    let outcomes: Vec<_> =
        task["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].as_str()).collect();
    assert_eq!(outcomes, [Some("retried"), Some("retried")]);
    assert!(task["attempts"][0]["message"].as_str().unwrap().contains("503"), "{task:#}");

    let calls = target.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|(_, body)| body == r#"{"n":1.5}"#), "the number is sent unchanged: {calls:?}");
    let traces = calls.iter().map(|(headers, _)| headers["traceparent"].to_str().unwrap());
    assert!(
        traces.clone().all(|sent| sent.contains("0af7651916cd43dd8448eb211c80319c")),
        "each call continues the trace"
    );
    daemon.server.shutdown().await;
}

/// The daemon stops while a step waits for its response. The next daemon makes the call, and no attempt is used up.
async fn a_shutdown_uses_up_no_attempt(place: StoreUrl) {
    let target = Target::start(&[]).await;
    let mut impatient = options(place.clone());
    impatient.drain_timeout = Duration::from_millis(50);
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
async fn an_http_step_is_retried_until_it_succeeds_on_sqlite() {
    let (_folder, place) = in_folder();
    an_http_step_is_retried_until_it_succeeds(place).await;
}

#[tokio::test]
async fn an_http_step_is_retried_until_it_succeeds_on_postgres() {
    an_http_step_is_retried_until_it_succeeds(postgres()).await;
}

#[tokio::test]
async fn a_shutdown_uses_up_no_attempt_on_sqlite() {
    let (_folder, place) = in_folder();
    a_shutdown_uses_up_no_attempt(place).await;
}

#[tokio::test]
async fn a_shutdown_uses_up_no_attempt_on_postgres() {
    a_shutdown_uses_up_no_attempt(postgres()).await;
}

#[tokio::test]
async fn steps_run_in_order_and_payloads_are_shown_on_request() {
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
async fn the_payloads_of_a_large_task_are_listed_in_pages() {
    let (_folder, place) = in_folder();
    let daemon = Daemon::start(place).await;
    let step = |number: u32| json!({ "name": number.to_string(), "operation": "parcel.ship", "payload": number, "delay": "1h" });
    let steps: Vec<Value> = (0..51).map(step).collect();
    let id = daemon.submit(&json!({ "steps": steps })).await;
    let whole = answer(daemon.get(&format!("/v1/tasks/{id}")).await, 200).await;
    assert_eq!(whole["steps"].as_array().unwrap().len(), 51);
    let refused = answer(daemon.get(&format!("/v1/tasks/{id}?payloads=true")).await, 400).await;
    let pages = format!("GET /v1/steps?task={id}&payloads=true");
    assert!(refused["detail"].as_str().unwrap().ends_with(&pages), "{refused}");
    let page = answer(daemon.get(&pages["GET ".len()..]).await, 200).await;
    let items = page["items"].as_array().unwrap();
    assert!(items.len() == 50 && items.iter().all(|step| step["payload"].is_number()), "{page}");
}

#[tokio::test]
async fn the_same_dedup_key_is_the_same_task() {
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
async fn a_start_needs_loopback_and_a_free_port() {
    let (_folder, place) = in_folder();
    let mut open = options(place.clone());
    open.listen = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(Server::start(open).await, Err(Error::NotLoopback(_))));

    let daemon = Daemon::start(place.clone()).await;
    let mut taken = options(place);
    taken.listen = daemon.server.address();
    let error = Server::start(taken).await.unwrap_err().to_string();
    assert!(error.contains("Another daemon may already listen there"), "{error}");
}
