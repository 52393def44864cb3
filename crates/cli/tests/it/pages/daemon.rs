//! The daemon, its target, and a device of a council.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get};
use holdoff_council::acceptor::{LinkReply, LinkRequest, ROLE};
use holdoff_council::{AcceptorReply, AcceptorRequest, CouncilId, NodeId, PublicKey, Slot};
use holdoff_net::{Link, LinkOptions, PeerAddress, PushReceiver, SecretKey};
use holdoff_paxos::Ballot;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::acceptor::founding;
use crate::pages::until;

/// Policies with short delays, so that tests do not wait.
pub(crate) const POLICIES: &str = r#"
default = "quick"
[policies.quick]
extends = "standard"
base = "10ms"
cap = "50ms"
attempts = 3
"#;

/// Settings under which no destination is ever blocked, however often it fails.
const FILE: &str = r#"
[work]
lease = "2s"
poll = "100ms"
[http.destination]
budget = { ratio = 1.0, burst = 10000 }
breaker = { failure_ratio = 1.0, min_calls = 100000, window = "10s", probes = 1 }
"#;

/// The settings that require an API token.
pub(crate) const TOKENS: &str = "[http]\nallow = [\"127.0.0.0/8\"]\n[server]\ntokens = \"required\"\n";

/// The settings that run an acceptor for councils.
pub(crate) const ACCEPTOR: &str = "[acceptor]\ndata = \"acceptor\"\nlisten = \"127.0.0.1:0\"\n";

/// The settings that run the existing ledgers.
pub(crate) const LEDGER: &str = "[ledger]\ndata = \"ledger\"\nlisten = \"127.0.0.1:0\"\n";

/// A daemon that ends with its test.
pub(crate) struct Daemon {
    process: Child,
    /// Its URL, without a slash at the end.
    pub(crate) url: String,
    /// The API token of the test itself.
    token: String,
    client: Client,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts a daemon that requires no API token.
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// Starts a daemon with additional settings. The test has an API token, whether the daemon requires one or not.
    pub(crate) fn start_with(more: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), more)
    }

    /// Starts a daemon that is the only member of ledgers with these names, with additional settings.
    pub(crate) fn with_ledgers(names: &[&str], more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            holdoff_ledger::runtime::create(&folder.path().join("ledger"), name).unwrap();
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
        let greeting: Value = serde_json::from_str(&greeting).expect("the daemon prints its URL");
        let url = url::Url::parse(greeting["url"].as_str().unwrap()).unwrap();
        let url = url.origin().ascii_serialization();
        Self { process, url, token, client: Client::new(), folder }
    }

    /// Returns the host and the port.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Creates an API token on the command line.
    pub(crate) fn token(&self, arguments: &[&str]) -> String {
        make_token(self.folder.path(), arguments)
    }

    /// Returns its acceptor's `KEY@HOST:PORT`.
    pub(crate) async fn acceptor(&self) -> String {
        self.get("/v1/acceptor").await["acceptor"].as_str().unwrap().to_owned()
    }

    /// Founds a council with its acceptor from a device with this name, which then adds a member. Returns the
    /// council's id.
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
        let guest = holdoff_net::SecretKey::from_secret(&[9; 32]).public().to_string();
        command(&["add", &guest, "--name", "guest"]);
        founded["council"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.request(Method::GET, path, None, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.request(Method::POST, path, Some(body), "").await
    }

    /// Sends a request with an id of the caller.
    pub(crate) async fn post_as(&self, id: &str, path: &str, body: Value) -> Value {
        self.request(Method::POST, path, Some(body), id).await
    }

    async fn request(&self, method: Method, path: &str, body: Option<Value>, id: &str) -> Value {
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

    /// Returns the text of a page.
    pub(crate) async fn page(&self, path: &str) -> String {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        request.send().await.unwrap().text().await.unwrap()
    }

    /// Submits a task. Returns its id.
    pub(crate) async fn submit(&self, task: Value) -> String {
        self.post("/v1/tasks", task).await["id"].as_str().unwrap().to_owned()
    }

    /// Submits a task with exactly this text.
    pub(crate) async fn submit_text(&self, task: String) -> String {
        let request = self.client.post(format!("{}/v1/tasks", self.url)).bearer_auth(&self.token);
        let answer = request.header("content-type", "application/json").body(task).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned()
    }

    /// Submits a task that requests this URL.
    pub(crate) async fn call(&self, operation: &str, queue: &str, url: &str) -> String {
        self.submit(json!({ "operation": operation, "queue": queue, "http": { "url": url } })).await
    }

    /// Returns the state of a task's first step.
    pub(crate) async fn state(&self, task: &str) -> String {
        self.get(&format!("/v1/steps/{task}/0")).await["step"]["state"].as_str().unwrap().to_owned()
    }

    /// Waits until the first step of every task is in this state.
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

/// A device. It is connected from its first request until it is dropped.
pub(crate) struct Device {
    key: PublicKey,
    link: Link,
    node: NodeId,
    _pushes: PushReceiver,
}

impl Device {
    /// Creates a device for the acceptor with this name.
    pub(crate) fn to(acceptor: &str) -> Self {
        let key = SecretKey::from_secret(&[7; 32]);
        let (peer, address) = acceptor.split_once('@').unwrap();
        let remote = PeerAddress { key: peer.parse().unwrap(), address: address.to_owned() };
        let call_timeout = Duration::from_secs(20);
        let options = LinkOptions { role: ROLE, call_timeout, ..LinkOptions::default() };
        let (link, pushes) = Link::new(&key, remote, options).unwrap();
        Self { key: key.public(), link, node: NodeId::derive(key.public().as_bytes(), 1), _pushes: pushes }
    }

    /// Returns the id of the council with this number.
    pub(crate) fn council(&self, number: u8) -> CouncilId {
        founding(number, self.key).council()
    }

    async fn prepare(&self, council: u8, slot: Slot, node: NodeId) -> AcceptorReply {
        let (ballot, announce) = (Ballot::new(slot, 1, node), Vec::new());
        self.request(council, AcceptorRequest::Prepare { slot, ballot, announce }).await
    }

    async fn request(&self, council: u8, request: AcceptorRequest) -> AcceptorReply {
        let request = LinkRequest::Council { incarnation: 1, council: self.council(council), request };
        let mut reply: LinkReply = self.link.call_value(&request).await.unwrap();
        reply.replies.remove(0)
    }

    /// Has the acceptor promise this number of slots of a council.
    pub(crate) async fn promise(&self, council: u8, slots: u8) {
        self.request(council, founding(council, self.key).introduction()).await;
        for slot in (1..=u64::from(slots)).map(Slot) {
            let reply = self.prepare(council, slot, self.node).await;
            assert!(matches!(reply, AcceptorReply::Promise { .. }), "{reply:?}");
        }
    }

    /// Sends a request with the id of another node, which the acceptor refuses.
    pub(crate) async fn pretend(&self) {
        let reply = self.prepare(1, Slot(1), NodeId(5)).await;
        assert!(matches!(reply, AcceptorReply::Refused { .. }), "{reply:?}");
    }
}

/// A server that fails on purpose.
pub(crate) struct Target {
    url: String,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_open: AtomicBool,
    stored: Mutex<String>,
}

impl Target {
    pub(crate) async fn start() -> Self {
        let gate = Arc::new(Gate::default());
        let app = Router::new()
            .route("/gate", any(gated))
            .route("/revision", any(revision))
            .route("/slow", any(std::future::pending::<StatusCode>))
            .route("/echo/{status}", any(echo))
            .route("/answer/{status}", any(answer))
            .with_state(Arc::clone(&gate));
        Self { url: serve(app).await, gate }
    }

    /// Returns the URL of a path. `/gate` refuses until it is opened; `/revision` reports a conflict for every
    /// revision but 2; `/slow` never answers; `/answer/503` answers with that status; `/echo/400` does too and
    /// returns the request's body.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) fn open(&self) {
        self.gate.is_open.store(true, Ordering::Relaxed);
    }

    /// Returns the last body that `/revision` accepted.
    pub(crate) fn stored(&self) -> String {
        self.gate.stored.lock().unwrap().clone()
    }
}

/// Serves a page from another origin, on its own port. Returns its URL.
pub(crate) async fn page(text: String) -> String {
    serve(Router::new().route("/", get(|| async { Html(text) }))).await
}

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn gated(State(gate): State<Arc<Gate>>) -> Response {
    if gate.is_open.load(Ordering::Relaxed) {
        return "done".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "closed for the night").into_response()
}

async fn revision(State(gate): State<Arc<Gate>>, body: String) -> Response {
    let sent: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    if sent["revision"] != 2 {
        return (StatusCode::CONFLICT, "revision 2 is the current one").into_response();
    }
    *gate.stored.lock().unwrap() = body;
    "stored".into_response()
}

async fn answer(UrlPath(status): UrlPath<u16>) -> StatusCode {
    StatusCode::from_u16(status).unwrap()
}

async fn echo(UrlPath(status): UrlPath<u16>, body: String) -> Response {
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}
