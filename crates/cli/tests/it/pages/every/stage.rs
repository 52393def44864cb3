//! A daemon with content on every page.

use serde_json::{Value, json};

use crate::pages::daemon::Daemon;
use crate::pages::target::Target;
use crate::pages::until;

/// The operation, the queue, the number of tasks, and the path on the target.
const TRAFFIC: [(&str, &str, usize, &str); 8] = [
    ("mail.send", "mail", 24, "/answer/200"),
    ("mail.digest", "mail", 6, "/answer/503"),
    ("card.charge", "payments", 12, "/answer/200"),
    ("card.refund", "payments", 4, "/answer/400"),
    ("search.index", "default", 5, "/answer/429"),
    ("report.render", "default", 3, "/answer/500"),
    ("webhook.deliver", "hooks", 8, "/answer/200"),
    ("webhook.retire", "hooks", 3, "/slow"),
];

/// Fills the daemon. Returns every page with its name and its address.
pub(super) async fn set(daemon: &Daemon, target: &Target) -> Vec<(&'static str, String)> {
    for (operation, queue, count, path) in TRAFFIC {
        let task = |number: usize| {
            let body = json!({ "order": 1000 + number, "customer": "ada@example.com" });
            json!({ "operation": operation, "queue": queue, "http": { "url": target.at(path), "body": body } })
        };
        daemon.post("/v1/tasks", (0..count).map(task).collect()).await;
    }
    let later =
        daemon.submit(json!({ "operation": "invoice.remind", "payload": { "n": 7 }, "delay": "2h" })).await;
    let failed = daemon.call("invoice.print", "print", &target.at("/gate")).await;
    let conflict = json!({ "url": target.at("/revision"), "body": { "revision": 1, "title": "Terms" } });
    let conflict = daemon.submit(json!({ "operation": "document.store", "http": conflict })).await;
    let graph = graph(daemon, target).await;
    for (key, name, lease) in
        [("deploy", "ci-7", "10m"), ("invoice 7", "billing-1", "20m"), ("nightly/report", "cron-eu", "1h")]
    {
        daemon.post("/v1/locks/acquire", json!({ "key": key, "name": name, "lease": lease })).await;
    }
    for host in ["db-3", "db-3", "db-3", "web-1"] {
        let data = json!({ "host": host, "alert": "disk full" });
        let task = json!({ "operation": "page.somebody", "payload": data });
        daemon.post("/v1/signals", json!({ "fields": ["host", "alert"], "data": data, "task": task })).await;
    }
    for device in ["laptop", "phone", "server-room-2"] {
        daemon.found(device).await;
    }
    // The second deployment equals the daemon's file and stays active; the first one becomes inactive.
    let file = |attempts: u32| json!({ "file": format!("{}{}", crate::pages::daemon::POLICIES, policies(attempts)) });
    let first = daemon.post("/v1/policies", file(6)).await;
    daemon.post("/v1/policies", file(9)).await;
    daemon.post("/v1/queues/pause", json!({ "queue": "hooks" })).await;
    daemon.token(&[
        "--name",
        "nightly export",
        "--scope",
        "read",
        "--namespace",
        "billing",
        "--expires",
        "90d",
    ]);
    daemon.settle(std::slice::from_ref(&failed), "failed").await;
    daemon.settle(std::slice::from_ref(&conflict), "conflicted").await;
    until("everything has come to rest", async || {
        let busy = daemon.get("/v1/steps?state=ready,running&operation=mail.*").await;
        busy["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
    until("its node is known", async || daemon.page("/nodes").await.contains("alive")).await;

    let version = first["id"].as_str().unwrap();
    [
        ("overview", "/".to_owned()),
        ("overview-day", "/?window=24h".to_owned()),
        ("tasks", "/tasks".to_owned()),
        ("task", format!("/tasks/{graph}")),
        ("steps", "/steps".to_owned()),
        ("steps-filtered", "/steps?state=failed&operation=mail.*&class=transient&text=nothing".to_owned()),
        ("tasks-none", "/tasks?text=nothing+of+the+kind".to_owned()),
        ("failed", "/failed".to_owned()),
        ("conflicts", "/conflicts".to_owned()),
        ("step", format!("/steps/{failed}/0")),
        ("step-waiting", format!("/steps/{later}/0?payload=shown")),
        ("step-conflicted", format!("/steps/{conflict}/0?payload=shown")),
        ("conflict", format!("/conflicts/{conflict}/0")),
        ("confirm", "/steps/act?state=failed&action=discard".to_owned()),
        ("queues", "/queues".to_owned()),
        ("signals", "/signals".to_owned()),
        ("locks", "/locks?free=too".to_owned()),
        ("councils", "/councils?sort=bytes".to_owned()),
        ("ledger", "/ledger?namespace=default".to_owned()),
        ("policies", "/policies?done=publish".to_owned()),
        ("policy", "/policies/standard".to_owned()),
        (
            "what-if",
            "/policies/mail?set.base=100ms&set.cap=30s&set.jitter=full&scenario=outage&clients=200"
                .to_owned(),
        ),
        ("version", format!("/policies/versions/{version}")),
        ("nodes", "/nodes".to_owned()),
        ("audit", "/audit".to_owned()),
        ("settings", "/settings".to_owned()),
        ("docs", "/docs".to_owned()),
    ]
    .into()
}

/// Returns further policies for the daemon's file.
pub(super) fn policies(attempts: u32) -> String {
    let mail = "[policies.mail]\nextends = \"quick\"\nbase = \"500ms\"\ncap = \"4s\"\ndeadline = \"1h\"";
    format!(
        "{mail}\nattempts = {attempts}\n[operations]\n\"mail.digest\" = \"quick\"\n\"mail.*\" = \"mail\"\n"
    )
}

async fn graph(daemon: &Daemon, target: &Target) -> String {
    let step = |name: &str, after: &[&str], path: &str| -> Value {
        let http = json!({ "url": target.at(path), "body": { "order": 17 } });
        json!({ "name": name, "operation": format!("order.{name}"), "after": after, "http": http })
    };
    let steps = [
        step("check", &[], "/answer/200"),
        step("charge", &["check"], "/answer/200"),
        step("reserve", &["check"], "/gate"),
        step("tell the customer", &["charge"], "/answer/200"),
        step("ship", &["charge", "reserve"], "/answer/200"),
        step("bill", &["ship"], "/answer/200"),
    ];
    daemon.submit(json!({ "steps": steps })).await
}

/// Writes a ledger whose history has an entry of each kind.
pub(super) async fn write_ledger(daemon: &Daemon) {
    for transaction in [
        json!({ "goal": "=> +balance(alice, 30), +balance(bob, 5)" }),
        json!({ "goal": "balance(alice, ?a), ?a >= 10 => -balance(alice, ?a), +balance(alice, ?a - 10)" }),
        json!({ "goal": "balance(carol, ?c) => -balance(carol, ?c)" }),
        json!({ "commands": [{ "put": "colour", "value": "red" }, { "increment": "visits" }] }),
    ] {
        daemon.post("/v1/ledger/transactions", transaction).await;
    }
    let key = holdoff_net::Key::from_secret(&[7; 32]).public().to_string();
    let member = json!({ "key": key, "address": "two.example.org:4848", "name": "two", "votes": false });
    daemon.post("/v1/ledger/members", member).await;
}
