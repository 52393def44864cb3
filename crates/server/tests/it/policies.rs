//! Policy versions over HTTP, and the responses of a daemon in its grace period.

use std::time::Duration;

use holdoff_server::{Place, Reload};
use serde_json::{Value, json};

use crate::bed::{Daemon, options};

const FILE: &str = "[policies.quick]\nextends = \"standard\"\nbase = \"10ms\"\ncap = \"20ms\"\n[operations]\n\"*\" = \"quick\"";

async fn publish(daemon: &Daemon, body: &Value) -> (u16, Value) {
    let response = daemon.client.post(format!("{}/v1/policies", daemon.url)).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn versions(daemon: &Daemon) -> Vec<Value> {
    daemon.get("/v1/policies/versions").await.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_published_by_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::directory(folder.path());
    let (one, other) = (Daemon::start(place.clone()).await, Daemon::start(place).await);
    assert_eq!(one.get("/readyz").await.text().await.unwrap(), "ready\n");
    let file = FILE.replace("20ms", "30ms");

    let (status, answer) = publish(&one, &json!({ "file": file, "dry_run": true })).await;
    assert_eq!((status, &answer["active"]), (200, &json!(false)));
    assert_eq!(answer["changes"][0]["subject"], "policy quick");
    assert_eq!(answer["changes"][0]["after"], json!(["cap = \"30ms\""]));
    assert_eq!(versions(&one).await.len(), 1, "nothing has happened yet");

    let (status, answer) = publish(&one, &json!({ "file": file })).await;
    assert_eq!((status, &answer["active"]), (200, &json!(true)));
    let found = versions(&other).await;
    assert_eq!((&found[0]["id"], &found[0]["published_by"]), (&answer["id"], &json!("the API")));
    while other.server.work().policy_version().to_string() != answer["id"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ready = other.get("/readyz").await;
    assert_eq!(ready.status(), 200, "it serves all the same");
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
        let (status, problem) = publish(&one, &wrong).await;
        assert_eq!((status, &problem["type"]), (400, &json!(kind)), "{problem}");
    }
    let long = "default = \"slow\"\n[policies.slow]\nbase = \"2d\"\ncap = \"2d\"";
    let (status, problem) = publish(&one, &json!({ "file": long })).await;
    assert!(status == 400 && problem["detail"].as_str().unwrap().contains("stale"), "{problem}");
    assert_eq!(versions(&one).await.len(), 2, "what cannot be used is not kept");
}

#[tokio::test]
async fn a_file_that_is_read_again_is_published_or_the_old_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies.toml");
    let mut options = options(Place::directory(folder.path()));
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
async fn a_daemon_on_its_way_out_is_not_ready_and_answers() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(Place::directory(folder.path()));
    options.grace = Duration::from_secs(60);
    let daemon = Daemon::start_with(options).await;
    let retiring = daemon.server.retire();
    tokio::pin!(retiring);
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
        () = &mut retiring => unreachable!("the grace is long"),
        () = asking => {}
    }
}
