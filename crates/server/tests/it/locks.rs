//! Locks over HTTP: the daemon grants them, and the client renews and releases them.

use std::time::Duration;

use holdoff_lock::Locks;
use holdoff_server::StoreUrl;
use serde_json::{Value, json};

use crate::support::Daemon;

async fn daemon() -> (tempfile::TempDir, StoreUrl, Daemon) {
    let folder = tempfile::tempdir().unwrap();
    let place = StoreUrl::in_directory(folder.path());
    let daemon = Daemon::start(place.clone()).await;
    (folder, place, daemon)
}

/// Posts a body. Returns the status and the body of the response.
async fn post(daemon: &Daemon, what: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/v1/locks/{what}", daemon.url);
    let response = daemon.client.post(url).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Returns the token, which is a string in JSON.
fn token(lock: &Value) -> u64 {
    lock["token"].as_str().unwrap().parse().unwrap()
}

async fn get(daemon: &Daemon, path: &str) -> (u16, Value) {
    let response = daemon.get(path).await;
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn a_lock_is_acquired_renewed_and_released() {
    let (_folder, _, daemon) = daemon().await;
    let wish = json!({ "key": "invoice 7", "lease": "2s", "name": "billing-1" });
    let (status, mine) = post(&daemon, "acquire", &wish).await;
    assert_eq!((status, &mine["key"], &mine["namespace"]), (200, &json!("invoice 7"), &json!("default")));
    let expires_in = mine["expires_in"].as_f64().unwrap();
    assert!(expires_in > 1.0 && expires_in < 2.0, "{mine}");

    let (status, refused) = post(&daemon, "acquire", &json!({ "key": "invoice 7" })).await;
    assert_eq!((status, &refused["type"]), (409, &json!("/problems/lock-held")), "{refused}");
    assert_eq!(
        (&refused["holder"]["name"], &refused["holder"]["token"]),
        (&json!("billing-1"), &mine["token"])
    );
    assert_eq!(refused["holder"].get("nonce"), None, "other clients do not learn the nonce");
    let (status, _) = post(&daemon, "acquire", &json!({ "key": "invoice 7", "wait": "100ms" })).await;
    assert_eq!(status, 409);

    let held = json!({ "key": "invoice 7", "lock": mine["lock"], "token": mine["token"] });
    let mut longer = held.clone();
    longer["lease"] = json!("1m");
    let (status, renewed) = post(&daemon, "renew", &longer).await;
    assert!(status == 200 && renewed["expires_in"].as_f64().unwrap() > 50.0, "{renewed}");
    let (_, shown) = get(&daemon, "/v1/locks/show?key=invoice%207").await;
    assert!(shown["holder"]["expires_in"].as_f64().unwrap() > 50.0, "{shown}");

    let mut forged = held.clone();
    forged["lock"] = json!("0192f0c1-2345-4abc-8def-0123456789ab");
    for what in ["renew", "release"] {
        let (status, refused) = post(&daemon, what, &forged).await;
        assert_eq!((status, &refused["type"]), (409, &json!("/problems/lock-lost")));
    }
    assert_eq!(post(&daemon, "release", &held).await, (200, json!({ "released": true })));
    assert_eq!(post(&daemon, "release", &held).await.0, 409, "a released lease cannot be released again");
    let (_, next) = post(&daemon, "acquire", &json!({ "key_base64": "aW52b2ljZSA3" })).await;
    assert!(token(&next) > token(&mine), "{next}");
}

#[tokio::test]
async fn an_expired_lease_is_granted_to_the_next_waiter() {
    let (_folder, _, daemon) = daemon().await;
    let (_, first) = post(&daemon, "acquire", &json!({ "key": "a", "lease": "500ms" })).await;
    let (status, second) = post(&daemon, "acquire", &json!({ "key": "a", "wait": "5s" })).await;
    assert_eq!(status, 200);
    assert!(token(&second) > token(&first));
}

#[tokio::test]
async fn locks_are_listed_and_released_by_force() {
    let (_folder, _, daemon) = daemon().await;
    let mut last = Value::Null;
    for (key, namespace) in [("a1", "default"), ("a2", "default"), ("b1", "default"), ("a1", "eu")] {
        let (_, mine) = post(&daemon, "acquire", &json!({ "key": key, "namespace": namespace })).await;
        if key == "a2" {
            let held = json!({ "key": key, "lock": mine["lock"], "token": mine["token"] });
            post(&daemon, "release", &held).await;
        }
        last = mine;
    }
    let keys = async |query: &str| {
        let (_, listed) = get(&daemon, &format!("/v1/locks{query}")).await;
        let key = |lock: &Value| {
            format!("{}/{}", lock["namespace"].as_str().unwrap(), lock["key"].as_str().unwrap())
        };
        listed["items"].as_array().unwrap().iter().map(key).collect::<Vec<_>>()
    };
    assert_eq!(keys("").await.len(), 4);
    assert_eq!(keys("?namespace=default&prefix=a").await, ["default/a1", "default/a2"]);
    assert_eq!(keys("?namespace=default&prefix=a&held=true").await, ["default/a1"]);
    let (mut paged, mut query) = (Vec::new(), "?limit=3".to_owned());
    loop {
        paged.push(keys(&query).await);
        let (_, page) = get(&daemon, &format!("/v1/locks{query}")).await;
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=3&cursor={next}");
    }
    assert_eq!(paged, [vec!["default/a1", "default/a2", "default/b1"], vec!["eu/a1"]]);
    assert_eq!(get(&daemon, "/v1/locks?cursor=nonsense").await.0, 400);
    assert_eq!(get(&daemon, "/v1/locks?limit=0").await.0, 400);

    let (_, forced) = post(&daemon, "force-release", &json!({ "key": "a1", "namespace": "eu" })).await;
    assert_eq!((&forced["released"], &forced["holder"]["token"]), (&json!(true), &last["token"]), "{forced}");
    let (_, again) = post(&daemon, "force-release", &json!({ "key": "a1", "namespace": "eu" })).await;
    assert_eq!(again, json!({ "released": false, "holder": null }));
    let (_, shown) = get(&daemon, "/v1/locks/show?key=a1&namespace=eu").await;
    assert_eq!(shown["held"], false);
    assert!(token(&shown) > token(&last), "the forced release made the holder's token stale: {shown}");
}

#[tokio::test]
async fn invalid_lock_requests_name_the_problem() {
    let (_folder, _, daemon) = daemon().await;
    let long = "k".repeat(70_000);
    for (what, body, expected) in [
        ("acquire", json!({}), "expected `key`"),
        ("acquire", json!({ "key": "" }), "empty"),
        ("acquire", json!({ "key": "a", "key_base64": "YQ==" }), "both"),
        ("acquire", json!({ "key_base64": "?" }), "not base64"),
        ("acquire", json!({ "key": long }), "70000 bytes"),
        ("acquire", json!({ "key": "a", "lease": "1ms" }), "between 100ms"),
        ("acquire", json!({ "key": "a", "lease": "5" }), "lease: "),
        ("acquire", json!({ "key": "a", "wait": "1m" }), "expected at most 25s"),
        ("acquire", json!({ "key": "a", "name": "n".repeat(300) }), "the name of the holder has 300 bytes"),
        ("acquire", json!({ "key": "a", "leese": "1s" }), "leese: unknown field"),
        ("renew", json!({ "key": "a", "token": "1" }), "missing field `lock`"),
        ("renew", json!({ "key": "a", "token": "1e3" }), "\"1e3\" is not a fencing token"),
        ("release", json!({ "key": "a", "lock": "x", "token": "1" }), "lock: "),
    ] {
        let (status, problem) = post(&daemon, what, &body).await;
        assert_eq!((status, &problem["type"]), (400, &json!("/problems/invalid-lock")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{problem}");
    }
    let (status, problem) = post(&daemon, "acquire", &json!({ "key": "k".repeat(200_000) })).await;
    assert_eq!((status, &problem["type"]), (413, &json!("/problems/too-large")), "{problem}");
    assert_eq!(get(&daemon, "/v1/locks/show?key=unknown").await.0, 404);
    assert_eq!(get(&daemon, "/v1/locks?hold=1").await.0, 400);
    let plain = daemon.client.post(format!("{}/v1/locks/acquire", daemon.url)).body("{\"key\":\"a\"}");
    assert_eq!(plain.send().await.unwrap().status(), 415, "a page elsewhere cannot take a lock");
}

/// A client that disconnects while it waits leaves the queue and is not granted the lock.
#[tokio::test]
async fn a_disconnected_client_leaves_the_lock_queue() {
    let (_folder, place, daemon) = daemon().await;
    let elsewhere = Locks::open(place.as_str()).await.unwrap();
    let held = elsewhere.acquire("a").await.unwrap();
    let url = format!("{}/v1/locks/acquire", daemon.url);
    let request = daemon.client.post(url).json(&json!({ "key": "a", "wait": "20s" }));
    let asked = tokio::spawn(request.send());
    until(&elsewhere, 1).await;
    asked.abort();
    until(&elsewhere, 0).await;
    held.release().await.unwrap();
    assert!(elsewhere.try_acquire("a").await.unwrap().is_some(), "the lock is free");
}

async fn until(locks: &Locks, waiting: u32) {
    let look = async {
        while locks.inspect("a").await.unwrap().is_none_or(|lock| lock.waiting != waiting) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(holdoff_testbed::CONDITION_TIMEOUT, look).await.unwrap();
}
