//! Daemons in separate processes, the target of their steps, and tasks at a constant rate.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::process::Process;

/// The binary under test.
pub(crate) const HOLDOFF: &str = env!("CARGO_BIN_EXE_holdoff");

/// A daemon that ends with its test.
pub(crate) struct Node {
    process: Process,
    pub(crate) url: String,
    pub(crate) client: Client,
    options: LaunchOptions,
}

/// The parameters to start the daemon and to start it again.
#[derive(Clone)]
struct LaunchOptions {
    program: PathBuf,
    store: String,
    config: PathBuf,
    grace: &'static str,
}

impl Node {
    pub(crate) fn start(store: &str, config: &Path) -> Self {
        Self::start_as(Path::new(HOLDOFF), store, config)
    }

    /// Starts a daemon with a grace period, in which a load balancer notices the shutdown.
    pub(crate) fn start_with_grace(store: &str, config: &Path, grace: &'static str) -> Self {
        let options =
            LaunchOptions { program: HOLDOFF.into(), store: store.into(), config: config.into(), grace };
        Self::launch(options, "127.0.0.1:0")
    }

    pub(crate) fn start_as(program: &Path, store: &str, config: &Path) -> Self {
        let (program, store, config) = (program.to_owned(), store.to_owned(), config.to_owned());
        Self::launch(LaunchOptions { program, store, config, grace: "" }, "127.0.0.1:0")
    }

    fn launch(options: LaunchOptions, listen: &str) -> Self {
        let mut command = Command::new(&options.program);
        command
            .args(["serve", "--json", "--listen", listen, "--log", "warn", "--store", &options.store])
            .arg("--config");
        command.arg(&options.config).env_remove("RUST_LOG");
        if !options.grace.is_empty() {
            command.args(["--grace", options.grace]);
        }
        let mut process = Process::start(&mut command);
        let [greeting] = process.greeting();
        let greeting: Value = serde_json::from_str(&greeting).expect("the greeting is JSON");
        let url = greeting["url"].as_str().unwrap().to_owned();
        Self { process, url, client: Client::new(), options }
    }

    /// Starts three daemons on one store.
    pub(crate) fn three(store: &str, config: &Path) -> Vec<Self> {
        (0..3).map(|_| Self::start(store, config)).collect()
    }

    /// Sends SIGKILL, so that the daemon cannot shut down.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Terminates the daemon, waits for its exit, and starts it again at the same address.
    pub(crate) async fn restart(self) -> Self {
        let (options, listen) = (self.options.clone(), self.url.trim_start_matches("http://").to_owned());
        tokio::task::spawn_blocking(move || {
            assert_eq!(self.terminate(), Some(0), "the daemon exits with 0");
            Self::launch(options, &listen)
        })
        .await
        .unwrap()
    }

    pub(crate) fn terminate(self) -> Option<i32> {
        self.process.terminate()
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.client.post(format!("{}{path}", self.url)).json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

/// The duration of an effect, long enough for a later grant to overtake it.
const WORK: Duration = Duration::from_millis(2);

/// A server that records every effect.
pub(crate) struct Target {
    pub(crate) url: String,
    table: Arc<Table>,
}

#[derive(Default)]
struct Table {
    rows: Mutex<HashMap<String, Row>>,
    calls: AtomicUsize,
    stale: AtomicUsize,
    is_closed: AtomicBool,
}

/// A step, by its idempotency key.
#[derive(Default)]
struct Row {
    highest: u64,
    /// Every fencing token that was presented.
    tokens: Vec<u64>,
    effects: usize,
    /// The fencing token of the request that took effect.
    done_by: u64,
    /// The number of repeated requests after a lost response.
    repeats: usize,
}

impl Target {
    pub(crate) async fn start() -> Self {
        let table = Arc::new(Table::default());
        let app = Router::new().fallback(effect).with_state(Arc::clone(&table));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/effects", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, table }
    }

    /// Sets whether the target answers 503 to every request.
    pub(crate) fn close(&self, is_closed: bool) {
        self.table.is_closed.store(is_closed, Ordering::Relaxed);
    }

    /// Returns the number of requests for this task's only step, one for each grant.
    pub(crate) fn calls_for(&self, task: &str) -> usize {
        self.table.rows.lock().unwrap().get(&format!("{task}/0")).map_or(0, |row| row.tokens.len())
    }

    /// Asserts that every step took effect exactly once. Returns a summary of the requests.
    pub(crate) fn assert_once(&self, tasks: &[String]) -> String {
        let rows = self.table.rows.lock().unwrap();
        for task in tasks {
            let row = rows.get(&format!("{task}/0")).unwrap_or_else(|| panic!("{task} had no effect"));
            assert_eq!(row.effects, 1, "{task}");
        }
        for (key, row) in rows.iter() {
            let mut tokens = row.tokens.clone();
            tokens.sort_unstable();
            tokens.dedup();
            assert_eq!(
                tokens.len(),
                row.tokens.len(),
                "{key}: two grants have the same fencing token: {:?}",
                row.tokens
            );
            // Only a later grant, with a higher fencing token, may repeat a request that took effect.
            let later = row.tokens.iter().filter(|token| **token > row.done_by).count();
            assert!(row.repeats <= later, "{key}: {} repeats, {later} later grants", row.repeats);
        }
        let (calls, stale) =
            (self.table.calls.load(Ordering::Relaxed), self.table.stale.load(Ordering::Relaxed));
        let repeats: usize = rows.values().map(|row| row.repeats).sum();
        format!(
            "{} effects of {calls} calls, {stale} stale ones refused, {repeats} repeated under a higher token",
            rows.len()
        )
    }
}

async fn effect(State(table): State<Arc<Table>>, headers: HeaderMap) -> StatusCode {
    if table.is_closed.load(Ordering::Relaxed) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (key, token) = (text("idempotency-key"), text("holdoff-fencing-token").parse::<u64>().unwrap());
    table.calls.fetch_add(1, Ordering::Relaxed);
    {
        let mut rows = table.rows.lock().unwrap();
        let row = rows.entry(key.clone()).or_default();
        row.highest = row.highest.max(token);
        row.tokens.push(token);
    }
    tokio::time::sleep(WORK).await;
    let mut rows = table.rows.lock().unwrap();
    let row = rows.entry(key).or_default();
    if token < row.highest {
        table.stale.fetch_add(1, Ordering::Relaxed);
        return StatusCode::PRECONDITION_FAILED;
    }
    // A repeated request after a lost response has no second effect.
    if row.effects == 0 {
        (row.effects, row.done_by) = (1, token);
    } else {
        row.repeats += 1;
    }
    StatusCode::OK
}

/// The maximum number of concurrent requests.
const AT_ONCE: usize = 256;

/// The outcome of the requests.
#[derive(Default)]
pub(crate) struct Load {
    /// The accepted tasks, with status 201.
    pub(crate) accepted: Vec<String>,
    /// Requests without a response, because their daemon was killed.
    pub(crate) unanswered: usize,
    /// Responses with any other status.
    pub(crate) refused: Vec<String>,
    pub(crate) took: Duration,
}

pub(crate) fn load_task(target: &str) -> Value {
    json!({ "operation": "order.confirm", "http": { "url": target, "body": { "paid": true } } })
}

/// Sends this number of tasks at this rate. `select_daemon` selects the daemon for each task.
pub(crate) async fn send_load(
    count: usize,
    per_second: u32,
    target: &str,
    select_daemon: impl Fn(usize) -> String,
) -> Load {
    let (client, permits) = (Client::new(), Arc::new(Semaphore::new(AT_ONCE)));
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
    let (began, mut sent) = (Instant::now(), Vec::with_capacity(count));
    for number in 0..count {
        ticks.tick().await;
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let request = client.post(format!("{}/v1/tasks", select_daemon(number))).json(&load_task(target));
        sent.push(tokio::spawn(async move {
            let answered = request.send().await;
            drop(permit);
            let answer = answered.map_err(|_| None)?;
            let status = answer.status().as_u16();
            let body: Value = answer.json().await.map_err(|_| None)?;
            match status {
                201 => Ok(body["id"].as_str().unwrap().to_owned()),
                _ => Err(Some(format!("{status} {body}"))),
            }
        }));
    }
    let mut load = Load { took: began.elapsed(), ..Load::default() };
    for answer in sent {
        match answer.await.unwrap() {
            Ok(task) => load.accepted.push(task),
            Err(None) => load.unanswered += 1,
            Err(Some(refusal)) => load.refused.push(refusal),
        }
    }
    load
}

impl Load {
    pub(crate) fn summary(&self) -> String {
        let sent = self.accepted.len() + self.unanswered + self.refused.len();
        #[expect(clippy::cast_precision_loss, reason = "printed only")]
        let rate = sent as f64 / self.took.as_secs_f64();
        format!(
            "{sent} requests at {rate:.0}/s: {} accepted, {} unanswered, {} refused",
            self.accepted.len(),
            self.unanswered,
            self.refused.len()
        )
    }
}
