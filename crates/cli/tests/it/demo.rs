//! `holdoff demo` with the real binary. Its summary equals the content of its store, and the demo leaves no other
//! files.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

/// The maximum number of polls, far more than the condition needs on a busy machine.
const MAX_POLLS: u32 = 3000;
const PAUSE: Duration = Duration::from_millis(20);

fn demo(arguments: &[&str], temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
    command.arg("demo").args(arguments).env("TMPDIR", temporary).env("NO_COLOR", "1");
    for variable in ["RUST_LOG", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(variable);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

/// Reads figures from the store, independently of the demo's code.
struct Store(SqliteConnection);

impl Store {
    async fn open(folder: &Path) -> Self {
        let file = folder.join("holdoff.db");
        Self(SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.unwrap())
    }

    async fn figure(&mut self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&mut self.0).await.unwrap()
    }
}

/// Selects every step with its task, state and lane.
macro_rules! over_all_steps {
    ($what:literal) => {
        concat!(
            "with steps as (select task, step, state, lane, destination from holdoff_steps \
             union all select task, step, state, lane, destination from holdoff_done), \
             named as (select steps.*, lanes.operation, lanes.paused from steps \
             join holdoff_lanes lanes on lanes.id = steps.lane) select ",
            $what
        )
    };
}

#[tokio::test]
async fn the_summary_matches_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let (data, temporary) = (folder.path().join("data"), tempfile::tempdir().unwrap());
    let arguments =
        ["--once", "--for", "6s", "--json", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let output = demo(&arguments, temporary.path()).output().unwrap();
    let progress = text(&output.stderr);
    let summary: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {progress}"));
    assert_eq!(summary["inconsistencies"], json!([]), "{progress}");
    assert!(output.status.success(), "{progress}");

    let mut store = Store::open(&data).await;
    let figures = [
        ("/submitted/tasks", over_all_steps!("count(distinct task) from named")),
        ("/submitted/steps", over_all_steps!("count(*) from named")),
        ("/steps/succeeded", over_all_steps!("count(*) from named where state = 3")),
        ("/steps/failed", over_all_steps!("count(*) from named where state = 4")),
        ("/steps/conflicted", over_all_steps!("count(*) from named where state = 5")),
        ("/steps/discarded", over_all_steps!("count(*) from named where state = 6")),
        ("/steps/cancelled", over_all_steps!("count(*) from named where state = 7")),
        ("/steps/unfinished/paused", over_all_steps!("count(*) from named where state = 1 and paused")),
        ("/steps/unfinished/blocked", over_all_steps!("count(*) from named where state = 0")),
        (
            "/steps/unfinished/other",
            over_all_steps!("count(*) from named where state = 2 or state = 1 and not paused"),
        ),
        ("/attempts/retried", "select count(*) from holdoff_attempts where outcome = 1"),
        ("/attempts/rescued", "select count(*) from holdoff_attempts where outcome = 7"),
        (
            "/attempts/made",
            "select (select count(*) from holdoff_attempts where outcome in (1, 2, 3, 7)) \
             + (select count(*) from holdoff_done where state = 3)",
        ),
        ("/signals/tasks", over_all_steps!("count(*) from named where operation = 'alert.page'")),
        ("/locks/highest_token", "select token from holdoff_locks where key = 'deploy/production'"),
        ("/target/done", over_all_steps!("count(*) from named where state = 3 and destination is not null")),
    ];
    for (figure, query) in figures {
        let shown = summary.pointer(figure).and_then(Value::as_i64);
        assert_eq!(shown, Some(store.figure(query).await), "{figure} of {summary:#}");
    }

    // The row of a fingerprint counts the signals of its last task. On a slow machine a task may end during its storm.
    let counted = store.figure("select coalesce(sum(occurrences), 0) from holdoff_signals").await;
    let rows = store.figure("select count(*) from holdoff_signals").await;
    let [sent, tasks] = ["sent", "tasks"].map(|figure| summary["signals"][figure].as_i64().unwrap());
    assert!(if tasks == rows { sent == counted } else { tasks > rows && sent > counted }, "{summary:#}");

    // Every kind of outcome occurred.
    for figure in [
        "/steps/succeeded",
        "/steps/failed",
        "/steps/conflicted",
        "/steps/unfinished/paused",
        "/attempts/retried",
        "/attempts/rescued",
        "/signals/tasks",
        "/locks/granted",
        "/target/refused",
    ] {
        assert!(summary.pointer(figure).and_then(Value::as_i64) > Some(0), "{figure} of {summary:#}");
    }
    assert!(summary["signals"]["sent"].as_i64() > summary["signals"]["tasks"].as_i64());
    assert_eq!(
        store.figure("select count(*) from holdoff_policy_sets").await,
        2,
        "a second version was deployed"
    );
    assert!(is_empty(temporary.path()), "no other file is left");

    // The demo refuses a store that already exists.
    let again = demo(&arguments, temporary.path()).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("already contains a store"), "{}", text(&again.stderr));
}

#[test]
fn the_demo_uses_a_free_port_and_removes_its_files() {
    // If another process has the port, the test works as well.
    let _taken = TcpListener::bind("127.0.0.1:7070");
    let temporary = tempfile::tempdir().unwrap();
    let Output { status, stdout, stderr } =
        demo(&["--once", "--for", "5s", "--seed", "2"], temporary.path()).output().unwrap();
    let (printed, progress) = (text(&stdout), text(&stderr));
    assert!(status.success() && printed.contains("The summary is consistent"), "{printed}\n{progress}");
    assert!(
        progress.contains("Port 7070 is in use") && !progress.contains("at http://127.0.0.1:7070 "),
        "{progress}"
    );
    assert!(progress.contains("removed ") && is_empty(temporary.path()), "{progress}");
}

#[test]
fn an_unusable_proxy_is_reported() {
    let temporary = tempfile::tempdir().unwrap();
    // No process listens at the proxy's address.
    let mut command = demo(&["--listen", "127.0.0.1:0"], temporary.path());
    let output = command
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .output();
    let output = output.unwrap();
    let progress = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{progress}");
    assert!(
        progress.contains("HTTP_PROXY") && progress.contains("NO_PROXY=") && is_empty(temporary.path()),
        "{progress}"
    );
}

/// A demo without end, and the worker process that it is going to kill.
struct Running {
    process: Child,
    /// The host and the port.
    address: String,
    worker: String,
}

impl Running {
    fn start(temporary: &Path) -> Self {
        let mut process = demo(&["--listen", "127.0.0.1:0"], temporary)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let greeting = BufReader::new(process.stdout.as_mut().unwrap()).lines().next().unwrap().unwrap();
        let url = greeting.split_whitespace().next().unwrap().to_owned();
        let address = url.strip_prefix("http://").expect(&greeting).to_owned();
        let running = Self { process, address, worker: format!("demo-worker\0{url}") };
        until("a worker is registered", || running.has_worker());
        running
    }

    fn has_worker(&self) -> bool {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| text(&line).contains(&self.worker))
        })
    }

    /// Returns the complete response, with its head.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&mut self, signal: &str) -> ExitStatus {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        self.process.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..MAX_POLLS {
        if is_so() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("timed out waiting: {what}");
}

#[test]
fn ctrl_c_stops_the_demo_and_removes_its_files() {
    let temporary = tempfile::tempdir().unwrap();
    let mut running = Running::start(temporary.path());
    assert!(running.get("/").starts_with("HTTP/1.1 200"), "the overview is served");
    // Every page has content.
    for (path, shown) in [
        ("/v1/tasks", "stock.reserve"),
        ("/v1/steps?state=ready&class=transient", "mail.send"),
        ("/v1/failed", "legacy.export"),
        ("/v1/conflicts", "crm.sync"),
        ("/v1/steps?operation=alert.page", "alert.page"),
        ("/v1/locks?held=true", "deploy/production"),
        ("/v1/queues?namespace=billing", "invoice.issue"),
        ("/v1/queues?queue=newsletter", "\"paused\":true"),
        ("/v1/policies/versions", "\"activated_by\":\"the API\""),
        ("/v1/audit", "step.resolve"),
    ] {
        until(path, || running.get(path).contains(shown));
    }
    let status = running.signal("-INT");
    let mut progress = String::new();
    running.process.stderr.take().unwrap().read_to_string(&mut progress).unwrap();
    assert_eq!(status.code(), Some(0), "{progress}");
    assert!(progress.contains("removed ") && is_empty(temporary.path()), "{progress}");
    until("the worker is gone", || !running.has_worker());
}

#[test]
fn a_worker_ends_with_a_killed_demo() {
    let temporary = tempfile::tempdir().unwrap();
    let mut running = Running::start(temporary.path());
    running.signal("-KILL");
    until("the worker is gone", || !running.has_worker());
}
