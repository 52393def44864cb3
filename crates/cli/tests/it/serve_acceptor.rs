//! `holdoff serve` with an acceptor. Three daemons keep a council. A daemon whose acceptor's disk fails reports it
//! and keeps serving everything else.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use holdoff_council::acceptor::{ROLE, Reply, Request};
use holdoff_council::{Ask, Batch, CouncilId, Digest, OperationId, Slot, Value, node_id};
use holdoff_net::{Key, Link, LinkOptions, Remote};
use holdoff_paxos::Ballot;
use serde_json::json;

use crate::process::Process;

const FILE: &str = "[acceptor]\ndata = \"acceptor\"\nlisten = \"127.0.0.1:0\"\n";

/// A daemon with an acceptor, in its own folder.
struct Daemon {
    process: Process,
    url: String,
    acceptor: String,
}

impl Daemon {
    /// Starts the daemon in a shell that first runs this line.
    fn start(folder: &Path, first: &str) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("holdoff.toml"), FILE).unwrap();
        let serve = "exec \"$HOLDOFF\" serve --json --listen 127.0.0.1:0 --data data --log off";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{first}\n{serve}")]).current_dir(folder);
        command.env("HOLDOFF", env!("CARGO_BIN_EXE_holdoff")).env_remove("RUST_LOG");
        let mut process = Process::start(&mut command);
        let [greeting] = process.greeting();
        let greeting: serde_json::Value = serde_json::from_str(&greeting).unwrap();
        let said = |name: &str| greeting[name].as_str().unwrap().to_owned();
        Self { process, url: said("url"), acceptor: said("acceptor") }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let answer = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn json(&self, path: &str) -> serde_json::Value {
        let (status, text) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

/// Runs a command of a device. Returns the last line of its output.
fn council(directory: &Path, words: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(["council", "--json", "--deadline", "60s", "--dir"])
        .arg(directory)
        .args(words)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {out}{err}");
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}

#[tokio::test]
async fn three_daemons_keep_a_council_and_one_of_them_may_go() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let mut daemons = ["a", "b", "c"].map(|name| Daemon::start(&place(name), ""));
    let mut words = vec!["init", "--name", "laptop"];
    for daemon in &daemons {
        words.extend(["--acceptor", &daemon.acceptor]);
    }
    let device = place("laptop");
    let id = council(&device, &words)["council"].as_str().unwrap().to_owned();
    daemons[2].process.kill();
    let key = Key::from_secret(&[9; 32]).public().to_string();
    let added = council(&device, &["add", &key, "--name", "phone"]);
    let status = council(&device, &["status"]);
    assert_eq!(status["council"], *id, "{added}");

    for daemon in &daemons[..2] {
        let shown = daemon.json("/v1/acceptor").await;
        assert_eq!((&shown["acceptor"], &shown["stopped"]), (&json!(daemon.acceptor), &json!(null)));
        let kept = daemon.json("/v1/acceptor/councils").await;
        assert_eq!(kept["items"].as_array().unwrap().len(), 1, "{kept}");
        assert_eq!(kept["items"][0]["mark"], status["mark"], "a device says how its council is shown");
        assert_eq!(kept["items"][0]["letters"], 1, "the invitation: {kept}");
        assert!(kept["items"][0]["latest"].as_u64() >= status["slot"].as_u64(), "{kept} {status}");
        for path in ["/v1/acceptor", "/v1/acceptor/councils", "/councils", "/metrics"] {
            let (_, text) = daemon.get(path).await;
            assert!(!text.contains(&id), "{path} tells the council's id");
        }
    }
    let [first, second, _] = daemons;
    assert_eq!([first, second].map(|daemon| daemon.process.terminate()), [Some(0); 2]);
}

/// Has the acceptor vote for large values until it no longer answers.
async fn fill(acceptor: &str) {
    const COUNCIL: CouncilId = CouncilId([3; 16]);
    let key = Key::from_secret(&[7; 32]);
    let (peer, address) = acceptor.split_once('@').unwrap();
    let remote = Remote { key: peer.parse().unwrap(), address: address.to_owned() };
    let options =
        LinkOptions { role: ROLE.to_owned(), call_timeout: CONDITION_TIMEOUT, ..LinkOptions::default() };
    let (link, _hearing) = Link::new(&key, remote, options).unwrap();
    for slot in (1..=200).map(Slot) {
        let withdrawn = vec![OperationId([1; 16]); 12_000];
        let batch = Batch { previous: Digest::default(), operations: Vec::new(), withdrawn, nonce: 1 };
        let value = Value::sign(COUNCIL, slot, &batch, &key).unwrap();
        let ballot = Ballot::new(slot, 1, node_id(&key.public(), 1));
        let ask = Ask::Accept { slot, ballot, value, next: None };
        let reply: Result<Reply, _> = link.ask(&Request::Ask { life: 1, council: COUNCIL, ask }).await;
        if reply.is_err() {
            return;
        }
    }
    panic!("the disk has room for everything");
}

/// No file of the daemon can grow beyond 8 MiB. The system refuses further writes, as a full disk does.
#[tokio::test]
async fn a_daemon_whose_acceptor_has_no_room_on_disk_is_not_ready_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), "trap '' XFSZ\nulimit -f 16384");
    assert_eq!(daemon.get("/readyz").await.0, 200);
    fill(&daemon.acceptor).await;

    let end = Instant::now() + CONDITION_TIMEOUT;
    let said = loop {
        let (status, said) = daemon.get("/readyz").await;
        if status == 503 {
            break said;
        }
        assert!(Instant::now() < end, "{status} {said}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    };
    assert!(said.contains("the acceptor has stopped: the acceptor's disk has failed"), "{said}");
    assert!(said.contains("File too large"), "the reason is the system's own: {said}");
    let shown = daemon.json("/v1/acceptor").await;
    assert!(shown["stopped"].as_str().unwrap().contains("File too large"), "{shown}");
    assert!(shown["asked"]["accept"].as_u64() > Some(0), "what was answered before is still known: {shown}");
    let (status, said) = daemon.get("/v1/acceptor/councils").await;
    assert!(status == 503 && said.contains("File too large"), "{status} {said}");
    let (status, page) = daemon.get("/councils").await;
    assert!(status == 200 && page.contains("It answers nobody") && page.contains("File too large"), "{page}");
    let (_, metrics) = daemon.get("/metrics").await;
    assert!(metrics.lines().any(|line| line == "holdoff_acceptor_stopped 1"), "{metrics}");

    // The daemon stays alive and serves everything else. The operator decides when to restart it.
    assert_eq!(daemon.get("/healthz").await.0, 200);
    let task = reqwest::Client::new().post(format!("{}/v1/tasks", daemon.url));
    let taken = task.json(&json!({ "operation": "mail.send" })).send().await.unwrap();
    assert_eq!(taken.status(), 201);
    assert_eq!(daemon.process.terminate(), Some(0));
}
