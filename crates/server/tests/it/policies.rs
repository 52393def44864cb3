//! Queues, policies and their versions, simulations, the API's document, and a daemon in its grace period.

use std::time::Duration;

use holdoff_server::{Reload, StoreUrl};
use serde_json::{Value, json};

use crate::support::{Daemon, Stores, answer, on_both_stores, options};

const FILE: &str = "[policies.quick]\nextends = \"standard\"\nbase = \"10ms\"\ncap = \"20ms\"\n[operations]\n\"*\" = \"quick\"";

async fn deploy(daemon: &Daemon, body: &Value) -> (u16, Value) {
    let response = daemon.client.post(format!("{}/v1/policies", daemon.url)).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn versions(daemon: &Daemon) -> Vec<Value> {
    daemon.get("/v1/policies/versions").await.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_deployed_by_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let place = StoreUrl::in_directory(folder.path());
    let (one, other) = (Daemon::start(place.clone()).await, Daemon::start(place).await);
    assert_eq!(one.get("/readyz").await.text().await.unwrap(), "ready\n");
    let file = FILE.replace("20ms", "30ms");

    let (status, answer) = deploy(&one, &json!({ "file": file, "dry_run": true })).await;
    assert_eq!((status, &answer["active"]), (200, &json!(false)));
    assert_eq!(answer["changes"][0]["subject"], "policy quick");
    assert_eq!(answer["changes"][0]["after"], json!(["cap = \"30ms\""]));
    assert_eq!(versions(&one).await.len(), 1, "a dry run deploys nothing");

    let (status, answer) = deploy(&one, &json!({ "file": file })).await;
    assert_eq!((status, &answer["active"]), (200, &json!(true)));
    let found = versions(&other).await;
    assert_eq!((&found[0]["id"], &found[0]["deployed_by"]), (&answer["id"], &json!("the API")));
    while other.server.work().policy_version().to_string() != answer["id"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ready = other.get("/readyz").await;
    assert_eq!(ready.status(), 200, "a daemon with policy drift stays ready");
    assert!(ready.text().await.unwrap().contains("policy drift: this node's policy file is version"));
    let metrics = other.get("/metrics").await.text().await.unwrap();
    // All daemons of this process set the same metric. The cluster of real processes in `holdoff-cli` checks its value.
    assert!(metrics.contains("\nholdoff_work_policy_drift "), "{metrics}");

    let wrong = [
        (json!({ "file": "[policies.x]\nbase = 3" }), "/problems/invalid-policies"),
        (json!({ "text": "" }), "/problems/invalid-body"),
        (json!([]), "/problems/invalid-body"),
    ];
    for (wrong, kind) in wrong {
        let (status, problem) = deploy(&one, &wrong).await;
        assert_eq!((status, &problem["type"]), (400, &json!(kind)), "{problem}");
    }
    let long = "default = \"slow\"\n[policies.slow]\nbase = \"2d\"\ncap = \"2d\"";
    let (status, problem) = deploy(&one, &json!({ "file": long })).await;
    assert!(status == 400 && problem["detail"].as_str().unwrap().contains("stale"), "{problem}");
    assert_eq!(versions(&one).await.len(), 2, "a rejected version is not stored");
}

#[tokio::test]
async fn a_reload_deploys_a_valid_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies.toml");
    let mut options = options(StoreUrl::in_directory(folder.path()));
    let read = file.clone();
    options.reload = Some(Reload::new(move || {
        let text = std::fs::read_to_string(&read).map_err(|error| error.to_string())?;
        holdoff_policy::PolicySet::from_toml(&text).map_err(|problems| problems.to_string())
    }));
    let daemon = Daemon::start_with(options).await;
    let before = daemon.server.work().policy_version();
    for broken in
        ["[policies.quick]\nbase = 3", "default = \"slow\"\n[policies.slow]\nbase = \"2d\"\ncap = \"2d\""]
    {
        std::fs::write(&file, broken).unwrap();
        daemon.server.reload().await;
        assert_eq!(daemon.server.work().policy_version(), before);
    }
    std::fs::write(&file, FILE.replace("20ms", "50ms")).unwrap();
    daemon.server.reload().await;
    assert_ne!(daemon.server.work().policy_version(), before);
    assert_eq!(daemon.server.work().drift(), None);
}

#[tokio::test]
async fn a_draining_daemon_is_unready_and_still_serves() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(StoreUrl::in_directory(folder.path()));
    options.grace = Duration::from_secs(60);
    let daemon = Daemon::start_with(options).await;
    let shutting_down = daemon.server.begin_shutdown();
    tokio::pin!(shutting_down);
    let asking = async {
        while daemon.get("/readyz").await.status() != 503 {}
        let answer = daemon.get("/readyz").await;
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["type"], "/problems/stopping");
        let taken = daemon.post(&json!({ "operation": "any" })).await;
        assert_eq!(
            (taken.status().as_u16(), taken.headers()["connection"].to_str().unwrap()),
            (201, "close")
        );
    };
    tokio::select! {
        () = &mut shutting_down => unreachable!("the shutdown ended before its grace period"),
        () = asking => {}
    }
}

async fn queues_are_listed_paused_and_resumed(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    for (operation, queue) in [("a", "one"), ("b", "one"), ("a", "two")] {
        daemon.submit(&json!({ "operation": operation, "queue": queue })).await;
    }
    daemon.submit(&json!({ "operation": "a", "namespace": "elsewhere", "delay": "1h" })).await;
    let list = async |query: &str| answer(daemon.get(&format!("/v1/queues?{query}")).await, 200).await;
    let page = list("limit=3").await;
    let names: Vec<_> =
        page["items"].as_array().unwrap().iter().map(|lane| lane["queue"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "one", "two"]);
    let rest = list(&format!("cursor={}", page["next"].as_str().unwrap())).await;
    assert_eq!((&rest["items"][0]["waiting"], &rest["next"]), (&json!(1), &json!(null)));
    let namespaces = answer(daemon.get("/v1/namespaces").await, 200).await;
    assert_eq!(namespaces["items"], json!(["default", "elsewhere"]));

    let claim = json!({ "worker": "w", "operations": ["a", "b"], "limit": 10 });
    let claimed = async || {
        let claimed = answer(daemon.send("/v1/workers/claim", &claim).await, 200).await;
        claimed["items"].as_array().unwrap().len()
    };
    let set = async |path: &str, name: &str, value: &str| {
        answer(daemon.send(path, &json!({ name: value })).await, 200).await["paused"].clone()
    };
    assert_eq!(set("/v1/queues/pause", "queue", "one").await, true);
    assert_eq!(set("/v1/operations/pause", "operation", "a").await, true);
    assert_eq!(list("queue=one").await["items"][1]["paused"], true);
    assert_eq!(claimed().await, 0);
    assert_eq!(set("/v1/queues/resume", "queue", "one").await, false);
    assert_eq!(claimed().await, 1);
    assert_eq!(set("/v1/operations/resume", "operation", "a").await, false);
    assert_eq!(claimed().await, 1);
    for wrong in
        [json!({}), json!({ "queue": "" }), json!({ "queue": "\u{0}" }), json!({ "queue": "q", "a": 1 })]
    {
        assert_eq!(daemon.send("/v1/queues/pause", &wrong).await.status(), 400, "{wrong}");
    }
}

async fn policies_are_listed_explained_and_decide(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let set = answer(daemon.get("/v1/policies").await, 200).await;
    assert_eq!(set["operations"], json!({ "*": "quick" }));
    assert_eq!(
        (&set["policies"]["quick"]["own"], &set["policies"]["standard"]["own"]),
        (&json!(true), &json!(false))
    );
    assert!(set["file"].as_str().unwrap().contains("[policies.quick]"));

    let standard = answer(daemon.get("/v1/policies/standard").await, 200).await;
    assert_eq!(
        (&standard["waits"][0]["low_us"], &standard["waits"][0]["high_us"]),
        (&json!(500_000), &json!(1_500_000))
    );
    let unknown = answer(daemon.get("/v1/policies/standart").await, 404).await;
    assert!(unknown["detail"].as_str().unwrap().contains("did you mean `standard`?"), "{unknown}");

    let decide = async |question| answer(daemon.send("/v1/policies/decide", &question).await, 200).await;
    let decided = decide(json!({ "policy": "standard", "attempt": 1, "roll": 0 })).await;
    assert_eq!((&decided["decision"], &decided["delay_us"]), (&json!("retry"), &json!(500_000)));
    let over = decide(json!({ "policy": "standard", "attempt": 5 })).await;
    assert_eq!(
        (&over["decision"], &over["retry"], over.get("delay_us")),
        (&json!("exhausted"), &json!(false), None)
    );
    let conflict = decide(json!({ "operation": "any", "class": "conflict" })).await;
    assert_eq!((&conflict["policy"], &conflict["decision"]), (&json!("quick"), &json!("hand_off")));
    for (wrong, status) in
        [(json!({}), 400), (json!({ "policy": "x" }), 404), (json!({ "policy": "lock", "class": "x" }), 400)]
    {
        assert_eq!(daemon.send("/v1/policies/decide", &wrong).await.status(), status, "{wrong}");
    }

    let lint = async |file: &str| {
        answer(daemon.send("/v1/policies/lint", &json!({ "file": file })).await, 200).await
    };
    let mistaken = lint("[policies.x]\natempts = 3").await;
    assert_eq!(mistaken["ok"], false);
    let is_it = |found: &&Value| found["suggestion"] == "attempts";
    assert_eq!(mistaken["problems"].as_array().unwrap().iter().find(is_it).unwrap()["line"], 2, "{mistaken}");
    let found =
        lint("[policies.x]\nextends = \"standard\"\njitter = \"none\"\n[operations]\n\"a\" = \"x\"").await;
    assert_eq!((&found["ok"], &found["findings"][0]["code"]), (&json!(true), &json!("no-jitter")), "{found}");
}

async fn a_simulation_beyond_the_limits_is_rejected(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let wish =
        json!({ "scenario": "row", "policies": ["full", "contention", "quick"], "runs": 5, "clients": 50 });
    let one = answer(daemon.send("/v1/sim", &wish).await, 200).await;
    assert_eq!(one["items"].as_array().unwrap().len(), 3);
    assert!(one["items"][1]["calls"]["mean"].as_f64() < one["items"][0]["calls"]["mean"].as_f64());
    assert_eq!(answer(daemon.send("/v1/sim", &wish).await, 200).await, one, "the same seed, the same answer");
    for name in ["storm", "limit", "outage"] {
        let wish = json!({ "scenario": name, "clients": 20, "runs": 2 });
        assert_eq!(answer(daemon.send("/v1/sim", &wish).await, 200).await["scenario"], name);
    }
    for wrong in [
        json!({ "scenario": "x" }),
        json!({ "scenario": "duel" }),
        json!({ "scenario": "row", "clients": 1001 }),
        json!({ "scenario": "row", "clients": 1000, "runs": 100 }),
        json!({ "scenario": "row", "policies": ["nonsense"] }),
        json!({ "scenario": "row", "policies": [] }),
    ] {
        let problem = answer(daemon.send("/v1/sim", &wrong).await, 400).await;
        assert_eq!(problem["type"], "/problems/invalid-body", "{wrong}");
    }
}

async fn the_document_is_served_as_json_and_html(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let document = answer(daemon.get("/openapi.json").await, 200).await;
    assert_eq!(document["openapi"], "3.1.0");
    let page = daemon.get("/docs").await;
    assert!(page.headers()["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    let page = page.text().await.unwrap();
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(page.contains(&format!(" {path}</code>")), "{path}");
    }
    assert!(!page.contains("<script"));
}

on_both_stores!(
    queues_are_listed_paused_and_resumed,
    policies_are_listed_explained_and_decide,
    a_simulation_beyond_the_limits_is_rejected,
    the_document_is_served_as_json_and_html,
);
