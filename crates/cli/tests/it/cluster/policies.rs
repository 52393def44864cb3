//! Policies that are deployed on one daemon become active on all.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::cluster::node::{HOLDOFF, Node};
use crate::cluster::{FILE, TURN, on_each_way_to_postgres, until};

fn deploy(file: &Path, store: &str) -> String {
    let output = Command::new(HOLDOFF)
        .args(["policy", "deploy", "--yes", "--store", store])
        .arg(file)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns whether a node knows a policy with this name.
async fn takes(node: &Node, policy: &str) -> bool {
    let task = json!({ "operation": "any", "policy": policy, "delay": "1h" });
    let (status, answer) = node.post("/v1/tasks", &task).await;
    assert!(status == 201 || answer.to_string().contains("policy"), "{answer}");
    status == 201
}

async fn wait_until_active(nodes: &[Node], policy: &str, how: &str) {
    let since = Instant::now();
    for node in nodes {
        until(&format!("{policy} is active on {}", node.url), async || takes(node, policy).await).await;
    }
    println!("policies by {how}: active on all three daemons after {:?}", since.elapsed());
}

async fn deployed_policies_become_active_on_all_daemons(store: &str) {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let nodes = Node::three(store, &config);
    assert!(!takes(&nodes[2], "fresh").await);

    let file = folder.path().join("new.toml");
    let fresh = |name: &str| format!("{FILE}\n[policies.{name}]\nextends = \"standard\"\nattempts = 7");
    std::fs::write(&file, fresh("fresh")).unwrap();
    let printed = deploy(&file, store);
    wait_until_active(&nodes, "fresh", "deploy").await;
    assert!(printed.contains("policy fresh\n") && printed.contains("  + attempts = 7\n"), "{printed}");
    assert!(deploy(&file, store).contains("is already active"));
    for node in &nodes {
        let (status, ready) = node.get("/readyz").await;
        assert!(status == 200 && ready.contains("policy drift: this node's policy file"), "{ready}");
        let (_, metrics) = node.get("/metrics").await;
        assert!(metrics.contains("holdoff_work_policy_drift 1"), "{metrics}");
    }

    // An invalid file changes nothing; a valid one is deployed from the daemon's own file.
    std::fs::write(&config, "[policies.x]\nbase = 3").unwrap();
    nodes[0].signal("-HUP");
    // Replaces the file atomically, because a reader of a file in the middle of a write sees only a part.
    let whole = folder.path().join("whole.toml");
    std::fs::write(&whole, fresh("hung")).unwrap();
    std::fs::rename(&whole, &config).unwrap();
    nodes[0].signal("-HUP");
    wait_until_active(&nodes, "hung", "SIGHUP").await;
    until("no drift is left where the file was read again", async || {
        nodes[0].get("/readyz").await.1 == "ready\n"
    })
    .await;

    let (status, answer) = nodes[1].post("/v1/policies", &json!({ "file": fresh("posted") })).await;
    assert_eq!(status, 200, "{answer}");
    wait_until_active(&nodes, "posted", "the API").await;

    let output =
        Command::new(HOLDOFF).args(["policy", "versions", "--json", "--store", store]).output().unwrap();
    let versions: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let by: Vec<&str> = versions.iter().map(|version| version["deployed_by"].as_str().unwrap()).collect();
    assert_eq!(versions.len(), 4, "{versions:?}");
    assert_eq!((by[0], &versions[0]["active"]), ("the API", &json!(true)));
    assert!(
        by[1].starts_with("SIGHUP of the daemon at") && by[3].starts_with("start of the daemon at"),
        "{by:?}"
    );
}

on_each_way_to_postgres!(deployed_policies_become_active_on_all_daemons);
