//! `holdoff serve` with a ledger node.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use holdoff_ledger::runtime::{PeerAddress, create};
use serde_json::{Value, json};

use crate::process::Process;

/// A daemon in its own folder.
struct Daemon {
    process: Process,
    url: String,
    greeting: Value,
}

impl Daemon {
    /// Starts the daemon in a shell that first runs this line.
    fn start(folder: &Path, file: &str, first: &str) -> Self {
        std::fs::write(folder.join("holdoff.toml"), file).unwrap();
        let serve = "exec \"$HOLDOFF\" serve --json --listen 127.0.0.1:0 --data data --log off";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{first}\n{serve}")]).current_dir(folder);
        command.env("HOLDOFF", env!("CARGO_BIN_EXE_holdoff")).env_remove("RUST_LOG");
        command.env("HOLDOFF_LEDGER_LISTEN", "127.0.0.1:0");
        let mut process = Process::start(&mut command);
        let [greeting] = process.greeting();
        let greeting: Value = serde_json::from_str(&greeting).unwrap();
        Self { process, url: greeting["url"].as_str().unwrap().to_owned(), greeting }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let answer = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn submit(&self, body: Value) -> (u16, Value) {
        let request = reqwest::Client::new().post(format!("{}/v1/ledger/transactions", self.url)).json(&body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

#[tokio::test]
async fn a_ledger_beside_the_store_is_served_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("data/ledger");
    let (key, _) = create(&place, "default").unwrap();
    let daemon = Daemon::start(folder.path(), "", "");
    let contact: PeerAddress = daemon.greeting["ledger"].as_str().unwrap().parse().unwrap();
    assert_eq!(contact.key, key);
    let (status, done) = daemon.submit(json!({ "commands": [{ "put": "a", "value": 7 }] })).await;
    assert_eq!((status, &done["outcome"]), (200, &json!("committed")), "{done}");
    assert_eq!(daemon.get("/readyz").await.0, 200);
    assert_eq!(daemon.process.terminate(), Some(0));

    let daemon = Daemon::start(folder.path(), "[ledger]\nname = \"one\"\n", "");
    let (status, value) = daemon.get("/v1/ledger/values/a").await;
    assert_eq!(status, 200, "{value}");
    let value: Value = serde_json::from_str(&value).unwrap();
    assert_eq!(value["value"], 7);
    assert_eq!(daemon.process.terminate(), Some(0));
}

#[tokio::test]
async fn a_daemon_without_a_ledger_directory_runs_no_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), "", "");
    assert_eq!(daemon.greeting.get("ledger"), None);
    assert!(!folder.path().join("data/ledger").exists());
    assert_eq!(daemon.process.terminate(), Some(0));
    let daemon = Daemon::start(folder.path(), "[ledger]\ndata = \"elsewhere\"\n", "");
    assert!(daemon.greeting["ledger"].is_string(), "{}", daemon.greeting);
    assert!(folder.path().join("elsewhere").is_dir());
    assert_eq!(daemon.get("/v1/ledgers").await.1, "{\"items\":[]}");
    assert_eq!(daemon.process.terminate(), Some(0));
}

/// No file of the daemon can grow beyond 8 MiB. The system refuses further writes, as a full disk does.
#[tokio::test]
async fn a_daemon_whose_ledger_disk_is_full_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    create(&folder.path().join("data/ledger"), "default").unwrap();
    let daemon = Daemon::start(folder.path(), "", "trap '' XFSZ\nulimit -f 16384");
    let put = |key: usize| json!({ "put": format!("{key}"), "value": "x".repeat(16_000) });
    for round in 0..100 {
        let commands: Vec<Value> = (0..60).map(|at| put(round * 60 + at)).collect();
        if daemon.submit(json!({ "commands": commands })).await.0 != 200 {
            break;
        }
    }
    let end = Instant::now() + CONDITION_TIMEOUT;
    let reply = loop {
        let (status, reply) = daemon.get("/readyz").await;
        if status == 503 {
            break reply;
        }
        assert!(Instant::now() < end, "{status} {reply}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    };
    assert!(reply.contains("a ledger's node has stopped `default`: the ledger's disk has failed"), "{reply}");
    assert!(
        reply.contains("File too large"),
        "the problem contains the error of the operating system: {reply}"
    );
    let (status, problem) = daemon.submit(json!({ "goal": "=> +a(1)" })).await;
    assert_eq!((status, &problem["type"]), (503, &json!("/problems/ledger-stopped")), "{problem}");
    let (status, text) = daemon.get("/v1/ledger").await;
    assert!(status == 503 && text.contains("File too large"), "{status} {text}");
    let (_, metrics) = daemon.get("/metrics").await;
    let stopped = "holdoff_ledger_stopped{namespace=\"default\"} 1";
    assert!(metrics.lines().any(|line| line == stopped), "{metrics}");

    // The daemon stays alive and serves everything else. The operator decides when to restart it.
    let task = reqwest::Client::new().post(format!("{}/v1/tasks", daemon.url));
    let taken = task.json(&json!({ "operation": "mail.send" })).send().await.unwrap();
    assert_eq!(taken.status(), 201);
    assert_eq!(daemon.process.terminate(), Some(0));
}
