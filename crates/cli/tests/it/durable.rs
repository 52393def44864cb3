//! A new user's first session with the daemon and the real binary: serve, submit, kill and restart.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::process::Process;

/// A daemon that ends with its test.
struct Daemon {
    process: Process,
    /// Host and port.
    address: String,
}

impl Daemon {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--log", "warn"]);
        let mut process = Process::start(command.current_dir(folder).env_remove("RUST_LOG"));
        let [greeting, store, file] = process.greeting();
        assert_eq!(store, "store: data/holdoff.db (SQLite)");
        assert_eq!(file, "policies: holdoff.toml");
        let address = greeting.split("http://").nth(1).expect(&greeting).to_owned();
        Self { process, address }
    }

    /// Sends an HTTP request. Returns the body of the response.
    fn request(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        let rest = format!(
            "Host: {host}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}"
        );
        write!(stream, "{head} HTTP/1.1\r\n{rest}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    fn kill(mut self) {
        self.process.kill();
    }

    fn terminate(self) -> Option<i32> {
        self.process.terminate()
    }
}

/// A server that answers 503, then not at all, then 200. It reports each request.
fn flaky() -> (String, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/orders/17", listener.local_addr().unwrap());
    let (called, calls) = channel();
    std::thread::spawn(move || {
        let mut unanswered = Vec::new();
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            let answer = if number == 0 { "503 Service Unavailable" } else { "200 OK" };
            if number == 1 {
                unanswered.push(stream);
            } else {
                write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .unwrap();
            }
            if called.send(number).is_err() {
                return;
            }
        }
    });
    (url, calls)
}

fn holdoff(folder: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(arguments)
        .args(["--data", "data"])
        .current_dir(folder)
        .output();
    output.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const FILE: &str = r#"
[work]
lease = "1s"
poll = "50ms"
[policies.quick]
extends = "standard"
base = "10ms"
cap = "50ms"
[operations]
"order.*" = "quick"
"#;

#[test]
fn a_step_survives_a_killed_daemon() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("holdoff.toml"), FILE).unwrap();
    let (url, calls) = flaky();

    let daemon = Daemon::start(folder.path());
    let task =
        serde_json::json!({ "operation": "order.confirm", "http": { "url": url, "body": { "paid": true } } });
    let taken: Value = serde_json::from_str(&daemon.request("POST /v1/tasks", &task.to_string())).unwrap();
    let id = taken["id"].as_str().unwrap().to_owned();
    assert_eq!(calls.recv_timeout(CONDITION_TIMEOUT), Ok(0), "the first attempt is refused");
    assert_eq!(calls.recv_timeout(CONDITION_TIMEOUT), Ok(1), "the second attempt gets no response");
    daemon.kill();

    let shown = holdoff(folder.path(), &["work", "show", &id]);
    assert!(text(&shown.stdout).contains("is running"), "{}", text(&shown.stdout));
    // `work list` prints ids of steps.
    let same = holdoff(folder.path(), &["work", "show", &format!("{id}/0")]);
    assert_eq!(text(&same.stdout).lines().next(), text(&shown.stdout).lines().next());
    let other = holdoff(folder.path(), &["work", "show", &format!("{id}/1")]);
    assert!(!other.status.success() && text(&other.stderr).contains("has no step 1"), "{other:?}");
    let daemon = Daemon::start(folder.path());
    assert_eq!(calls.recv_timeout(CONDITION_TIMEOUT), Ok(2), "the step is rescued");
    let task = loop {
        let task: Value = serde_json::from_str(&daemon.request(&format!("GET /v1/tasks/{id}"), "")).unwrap();
        if task["state"] != "running" {
            break task;
        }
    };
    assert_eq!(task["state"], "succeeded", "{task:#}");
    let outcomes: Vec<_> =
        task["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["retried", "rescued"]);
    assert_eq!(task["steps"][0]["failures"], 1, "a killed daemon is not a failure of the step");

    for (payloads, has_output) in [(None, false), (Some("--payloads"), true)] {
        let arguments: Vec<&str> =
            ["work", "show", id.as_str(), "--json"].into_iter().chain(payloads).collect();
        let shown: Value = serde_json::from_slice(&holdoff(folder.path(), &arguments).stdout).unwrap();
        assert_eq!(shown["steps"][0].get("output").is_some(), has_output, "{shown:#}");
    }
    let shown = holdoff(folder.path(), &["work", "show", &id]);
    assert!(text(&shown.stdout).contains("is succeeded"), "{}", text(&shown.stdout));
    assert_eq!(daemon.terminate(), Some(0));
}

#[test]
fn tasks_are_administered_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = holdoff(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).trim_end().to_owned()
    };
    let first = run(&[
        "work",
        "submit",
        "mail.send",
        "--json-payload",
        "{\"to\": 1.50}",
        "--dedup",
        "a",
        "--queue",
        "mail",
    ]);
    let again = run(&["work", "submit", "mail.send", "--dedup", "a", "--json"]);
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((again["id"].as_str(), &again["duplicate"]), (Some(first.as_str()), &Value::Bool(true)));
    let confirm = run(&[
        "work",
        "submit",
        "order.confirm",
        "--http",
        "put",
        "http://localhost:1/",
        "--body",
        "[1]",
        "--delay",
        "1h",
        "--expires-in",
        "2h",
    ]);
    assert!(run(&["work", "show", &confirm]).contains(", expires in "));

    let listed: Value =
        serde_json::from_str(&run(&["work", "list", "--operation", "mail.*", "--json"])).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["queue"], "mail");
    let shown = run(&["work", "show", &first, "--payloads"]);
    assert!(shown.contains("payload of step 0: {\"to\": 1.50}") && shown.contains("due"), "{shown}");
    assert!(run(&["work", "list", "--state", "ready", "--queue", "default"]).contains("order.confirm"));

    assert!(run(&["work", "pause", "--queue", "mail"]).starts_with("paused queue mail"));
    let stats: Value = serde_json::from_str(&run(&["work", "stats", "--json"])).unwrap();
    assert_eq!((&stats[1]["operation"], &stats[1]["paused"]), (&"mail.send".into(), &true.into()));
    assert!(run(&["work", "stats"]).contains("mail.send (paused)"));
    assert_eq!(run(&["work", "resume", "--queue", "mail"]), "resumed queue mail");

    let refused = holdoff(folder.path(), &["work", "cancel", "--queue", "mail"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("this would cancel all tasks of 1 step; add --yes"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(run(&["work", "cancel", "--queue", "mail", "--yes"]), "1 step cancelled");
    assert!(run(&["work", "show", &first]).contains("is cancelled"));
}
