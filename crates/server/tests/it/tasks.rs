//! Tasks over the API: listing, cancellation, and repeated submission under the same key.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::bed::{Daemon, Stores, answer, on_both_stores};

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

async fn tasks_are_listed_a_page_at_a_time(stores: Stores) {
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

async fn a_task_is_cancelled(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let id = daemon.submit(&json!({ "operation": "a", "delay": "1h" })).await;
    for count in [1, 0] {
        let cancelled = daemon.send(&format!("/v1/tasks/{id}/cancel"), &json!({})).await;
        assert_eq!(answer(cancelled, 200).await, json!({ "count": count }));
    }
    assert_eq!(daemon.task(&id).await["state"], "cancelled");
    let nobodys = "/v1/tasks/00000000-0000-0000-0000-000000000000/cancel";
    assert_eq!(answer(daemon.send(nobodys, &json!({})).await, 404).await["type"], "/problems/no-such-task");
}

async fn a_task_sent_again_under_its_key_is_taken_in_once(stores: Stores) {
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

on_both_stores!(
    tasks_are_listed_a_page_at_a_time,
    a_task_is_cancelled,
    a_task_sent_again_under_its_key_is_taken_in_once,
);
