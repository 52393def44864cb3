//! A daemon as a process of its own, with a folder of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::pages::until;

/// Waits that do not keep tests waiting.
pub(crate) const POLICIES: &str = r#"
default = "quick"
[policies.quick]
extends = "standard"
base = "10ms"
cap = "50ms"
attempts = 3
"#;

/// No destination is ever left alone, however often it fails.
const FILE: &str = r#"
[work]
lease = "2s"
poll = "100ms"
[http.destination]
budget = { ratio = 1.0, burst = 10000 }
breaker = { failure_ratio = 1.0, min_calls = 100000, window = "10s", probes = 1 }
"#;

/// What makes everybody need a token.
pub(crate) const TOKENS: &str = "[server]\ntokens = \"required\"\n";

/// What makes it run an acceptor of councils.
pub(crate) const ACCEPTOR: &str = "[acceptor]\ndata = \"acceptor\"\nlisten = \"127.0.0.1:0\"\n";

/// What makes it run the ledgers that are there.
pub(crate) const LEDGER: &str = "[ledger]\ndata = \"ledger\"\nlisten = \"127.0.0.1:0\"\n";

/// A daemon that does not outlive its test.
pub(crate) struct Daemon {
    process: Child,
    /// Where it is, without a slash at the end.
    pub(crate) url: String,
    /// What the test itself comes with.
    token: String,
    client: Client,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// Nobody needs a token.
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// With more in its file. There is a token for the test, whether one is needed or not.
    pub(crate) fn start_with(more: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), more)
    }

    /// One that decides ledgers of these names alone, with more in its file.
    pub(crate) fn with_ledgers(names: &[&str], more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            holdoff_ledger::runtime::found(&folder.path().join("ledger"), name).unwrap();
        }
        Self::start_in(folder, &format!("{more}{LEDGER}"))
    }

    fn start_in(folder: tempfile::TempDir, more: &str) -> Self {
        std::fs::write(folder.path().join("holdoff.toml"), format!("{POLICIES}{FILE}{more}")).unwrap();
        let token = make_token(folder.path(), &["--name", "the test", "--scope", "admin"]);
        let mut process = Command::new(env!("CARGO_BIN_EXE_holdoff"))
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--data", "data", "--log", "error"])
            .current_dir(folder.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut greeting = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
        let greeting: Value = serde_json::from_str(&greeting).expect("it says where it serves");
        let url = url::Url::parse(greeting["url"].as_str().unwrap()).unwrap();
        let url = url.origin().ascii_serialization();
        Self { process, url, token, client: Client::new(), folder }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// A token, made on the command line.
    pub(crate) fn token(&self, arguments: &[&str]) -> String {
        make_token(self.folder.path(), arguments)
    }

    /// Its acceptor, as devices know it.
    pub(crate) async fn acceptor(&self) -> String {
        self.get("/v1/acceptor").await["acceptor"].as_str().unwrap().to_owned()
    }

    /// Founds a council with its acceptor, from a device of this name, which invites somebody; the council's id.
    pub(crate) async fn found(&self, device: &str) -> String {
        let acceptor = self.acceptor().await;
        let command = |words: &[&str]| -> Value {
            let done = Command::new(env!("CARGO_BIN_EXE_holdoff"))
                .args(["council", "--json", "--dir", device])
                .args(words)
                .current_dir(self.folder.path())
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            serde_json::from_slice(&done.stdout).unwrap()
        };
        let founded = command(&["init", "--name", device, "--acceptor", &acceptor]);
        let somebody = holdoff_net::Key::from_secret(&[9; 32]).public().to_string();
        command(&["add", &somebody, "--name", "somebody"]);
        founded["council"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, None, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, Some(body), "").await
    }

    /// Under an id of the caller's own.
    pub(crate) async fn post_as(&self, id: &str, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, Some(body), id).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>, id: &str) -> Value {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        if !id.is_empty() {
            request = request.header("x-request-id", id);
        }
        let request = match &body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// A page, as its text.
    pub(crate) async fn page(&self, path: &str) -> String {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        request.send().await.unwrap().text().await.unwrap()
    }

    /// Takes a task in; its id.
    pub(crate) async fn submit(&self, task: Value) -> String {
        self.post("/v1/tasks", task).await["id"].as_str().unwrap().to_owned()
    }

    /// The same of a task that is written down to the last sign.
    pub(crate) async fn submit_text(&self, task: String) -> String {
        let request = self.client.post(format!("{}/v1/tasks", self.url)).bearer_auth(&self.token);
        let answer = request.header("content-type", "application/json").body(task).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned()
    }

    /// A task that calls this.
    pub(crate) async fn call(&self, operation: &str, queue: &str, url: &str) -> String {
        self.submit(json!({ "operation": operation, "queue": queue, "http": { "url": url } })).await
    }

    /// The state of a task's first step.
    pub(crate) async fn state(&self, task: &str) -> String {
        self.get(&format!("/v1/steps/{task}/0")).await["step"]["state"].as_str().unwrap().to_owned()
    }

    /// Waits until the first steps of all of them are in this state.
    pub(crate) async fn settle(&self, tasks: &[String], state: &str) {
        for task in tasks {
            until(&format!("{task} is {state}"), async || self.state(task).await == state).await;
        }
    }
}

fn make_token(folder: &Path, arguments: &[&str]) -> String {
    let made = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(["token", "create", "--data", "data"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
