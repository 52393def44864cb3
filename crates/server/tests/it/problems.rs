//! Problem responses of the daemon, its endpoints for monitoring, and its log.

use std::io;
use std::sync::{Arc, Mutex};

use holdoff_server::{Server, StoreUrl};
use reqwest::Response;
use serde_json::{Value, json};
use tracing_subscriber::util::SubscriberInitExt;

use crate::support::{Daemon, Target, call, options, show_logs};

async fn daemon() -> (tempfile::TempDir, Daemon) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(StoreUrl::in_directory(folder.path())).await;
    (folder, daemon)
}

/// Checks that the response is a problem of this kind. Returns its detail.
async fn problem(response: Response, status: u16, kind: &str) -> String {
    assert_eq!(response.status(), status);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert!(response.headers().contains_key("x-request-id"));
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["type"], format!("/problems/{kind}"), "{problem}");
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string());
    problem["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn invalid_submissions_name_the_problem() {
    let (_folder, daemon) = daemon().await;
    let http = json!({ "url": "http://localhost/" });
    let step = |name: &str, after: &str| json!({ "name": name, "operation": "a", "after": [after] });
    let bodies = [
        (json!({}), "expected `operation`"),
        (json!("text"), "expected struct TaskForm"),
        (json!({ "operation": "" }), "operation \"\" is invalid"),
        (json!({ "operaton": "a" }), "unknown field `operaton`"),
        (json!({ "operation": "a", "steps": [] }), "got both"),
        (json!({ "steps": [] }), "has no steps"),
        (json!({ "steps": [{ "operation": "a" }] }), "steps[0]: missing field `name`"),
        (json!({ "steps": [step("x", "y")] }), "runs after `y`, but the task has no step of that name"),
        (json!({ "steps": [step("x", "y"), step("y", "x")] }), "in a cycle"),
        (json!({ "steps": [step("x", "y")], "queue": "q" }), "`queue` belongs in each step"),
        (json!({ "operation": "a", "http": http, "payload": 1 }), "both `http` and `payload`"),
        (json!({ "operation": "a", "http": { "url": "ftp://x/" } }), "has an invalid HTTP request"),
        (
            json!({ "operation": "a", "http": { "url": "http://x/", "methd": "GET" } }),
            "http.methd: unknown field",
        ),
        (json!({ "operation": "a", "http": { "url": "http://x/", "timeout": "5" } }), "http.timeout: "),
        (json!({ "operation": "a", "delay": "soon" }), "delay: invalid duration \"soon\""),
        (json!({ "operation": "a", "delay": "2s", "expires_in": "1s" }), "expires 1s after its submission"),
        (json!({ "operation": "a", "priority": 10 }), "priority 10: expected 0"),
        (json!({ "operation": "a", "policy": "missing" }), "policy `missing`, which is not defined"),
        (json!([{ "operation": "a" }, { "operation": 1 }]), "[1].operation: invalid type"),
        (json!([{ "operation": "a" }, {}]), "[1]: expected `operation`"),
        (Value::Array(vec![json!({ "operation": "a" }); 1001]), "at most 1000"),
    ];
    for (body, expected) in bodies {
        let detail = problem(daemon.post(&body).await, 400, "invalid-task").await;
        assert!(detail.contains(expected), "{body}: {detail}");
    }
    let page = daemon.get("/").await.text().await.unwrap();
    assert!(page.contains("No work yet"), "a rejected task is not stored");
}

#[tokio::test]
async fn a_body_that_is_not_json_is_rejected() {
    let (_folder, daemon) = daemon().await;
    let post = || daemon.client.post(format!("{}/v1/tasks", daemon.url));
    let plain = post().body(r#"{"operation":"a"}"#).send().await.unwrap();
    assert!(problem(plain, 415, "not-json").await.contains("--json"));
    let json = || post().header("content-type", "application/json; charset=utf-8");
    for (body, expected) in
        [("", "EOF"), ("{", "EOF"), ("{} {}", "trailing"), (r#"{"operation":"a",}"#, "trailing")]
    {
        let detail = problem(json().body(body).send().await.unwrap(), 400, "invalid-task").await;
        assert!(detail.contains(expected), "{body}: {detail}");
    }
}

#[tokio::test]
async fn oversized_bodies_are_rejected() {
    let (_folder, daemon) = daemon().await;
    let payload = json!({ "operation": "a", "payload": "x".repeat(300 << 10) });
    let detail = problem(daemon.post(&payload).await, 413, "too-large").await;
    assert!(detail.contains("work.max_payload"), "{detail}");
    let body = json!({ "operation": "a", "payload": "x".repeat(1 << 20) });
    let detail = problem(daemon.post(&body).await, 413, "too-large").await;
    assert!(detail.contains("1048576 bytes"), "{detail}");
}

#[tokio::test]
async fn missing_objects_are_a_404() {
    let (_folder, daemon) = daemon().await;
    problem(daemon.get("/nowhere").await, 404, "not-found").await;
    problem(daemon.get("/v1/tasks/17").await, 400, "invalid-id").await;
    problem(daemon.get("/v1/tasks/0192f0c1-2345-7abc-8def-0123456789ab").await, 404, "no-such-task").await;
    problem(
        daemon.get("/v1/tasks/0192f0c1-2345-7abc-8def-0123456789ab?payload=1").await,
        400,
        "invalid-query",
    )
    .await;
    let get = daemon.get("/v1/signals").await;
    assert_eq!(get.headers()["allow"], "POST");
    problem(get, 405, "method-not-allowed").await;
}

#[tokio::test]
async fn a_full_queue_returns_a_retry_after() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(StoreUrl::in_directory(folder.path()));
    options.settings.max_depth = 1;
    let daemon = Daemon::start_with(options).await;
    daemon.submit(&json!({ "operation": "a" })).await;
    let full = daemon.post(&json!({ "operation": "a" })).await;
    let seconds: u64 = full.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((2..=10).contains(&seconds));
    problem(full, 429, "queue-full").await;
}

#[tokio::test]
async fn queues_beyond_the_limit_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(StoreUrl::in_directory(folder.path()));
    options.settings.max_namespace_lanes = 2;
    let daemon = Daemon::start_with(options).await;
    for operation in ["a", "b", "a"] {
        daemon.submit(&json!({ "operation": operation })).await;
    }
    problem(daemon.post(&json!({ "operation": "c" })).await, 422, "too-many-queues").await;
    let signal = json!({ "fingerprint": "f", "task": { "operation": "c" } });
    let signalled = daemon.client.post(format!("{}/v1/signals", daemon.url)).json(&signal).send().await;
    problem(signalled.unwrap(), 422, "too-many-queues").await;
}

#[tokio::test]
async fn a_foreign_host_is_rejected() {
    let (_folder, daemon) = daemon().await;
    let rebound = daemon.client.get(&daemon.url).header("host", "evil.example").send().await.unwrap();
    problem(rebound, 421, "wrong-host").await;
}

/// A page of another origin can make a browser call loopback under loopback's own name, but the browser reports the
/// page's origin.
#[tokio::test]
async fn a_foreign_origin_is_rejected_without_tokens() {
    let (_folder, daemon) = daemon().await;
    let with = async |origin: &str| {
        let request = daemon.client.post(format!("{}/v1/tasks", daemon.url)).header("origin", origin);
        request.json(&json!({ "operation": "a" })).send().await.unwrap()
    };
    for origin in ["http://evil.example", "https://localhost.evil.example", "null"] {
        problem(with(origin).await, 421, "wrong-host").await;
    }
    problem(with("http://localhost:3000").await, 403, "forbidden").await;
    assert_eq!(with(&daemon.url).await.status(), 201);
}

#[tokio::test]
async fn monitoring_endpoints_answer() {
    let (_folder, daemon) = daemon().await;
    let target = Target::start(&[]).await;
    let id = daemon.submit(&call("watched", &target.url)).await;
    daemon.until_over(&id).await;
    for (path, expected) in [("/healthz", "alive"), ("/readyz", "ready")] {
        let answer = daemon.client.get(format!("{}{path}", daemon.url)).header("x-request-id", "mine");
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["x-request-id"], "mine");
        assert_eq!(answer.text().await.unwrap().trim(), expected);
    }
    let metrics = daemon.get("/metrics").await.text().await.unwrap();
    for expected in [
        "# HELP holdoff_work_submitted_total steps that were accepted",
        "holdoff_work_submitted_total{namespace=\"default\",queue=\"default\",operation=\"watched\"} 1",
        "holdoff_server_requests_total{route=\"/v1/tasks\",method=\"POST\",status=\"201\"}",
        "holdoff_server_request_seconds_bucket{route=\"/v1/tasks\",le=\"0.001\"}",
    ] {
        let names =
            metrics.lines().filter(|line| line.starts_with("holdoff_server") || line.contains("submitted"));
        assert!(metrics.contains(expected), "no {expected} in {:#?}", names.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_steps_page_escapes_user_input() {
    let (_folder, daemon) = daemon().await;
    let target = Target::start(&[404]).await;
    daemon
        .submit(&json!({ "operation": "<b>", "queue": "\"q\"", "payload": "a secret", "delay": "1h" }))
        .await;
    let failing = json!({ "operation": "<script>alert(1)</script>", "http": { "url": target.url } });
    let failed = daemon.submit(&failing).await;
    daemon.until_over(&failed).await;

    let answer = daemon.get("/steps").await;
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self'"), "{policy}");
    let page = answer.text().await.unwrap();
    assert!(page.contains("&#60;b&#62;") && !page.contains("<b>"), "{page}");
    assert!(!page.contains("<script>") && !page.contains("a secret"), "{page}");
    assert!(page.contains(&format!(r#"href="/steps/{failed}/0""#)) && page.contains("404"), "{page}");
    let page = daemon.get("/").await.text().await.unwrap();
    for (count, word) in [(1, "waiting"), (1, "failed"), (0, "conflicted")] {
        let figure = format!(r#"<span class="figure">{count}</span> <span class="word">{word}</span>"#);
        assert!(page.contains(&figure), "{page}");
    }
    let style = daemon.get("/assets/style.css").await;
    assert_eq!(style.headers()["content-type"], "text/css; charset=utf-8");
}

/// Everything that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Postgres sends a notice for each table that already exists. The daemon does not log these notices.
#[tokio::test]
async fn a_start_on_an_existing_store_logs_no_notices() {
    // Without a second subscriber, a call site that another thread reaches first would stay disabled here.
    show_logs();
    let log = Log::default();
    let writer = log.clone();
    let logging = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO);
    let _guard = logging.with_writer(move || writer.clone()).set_default();
    let url = holdoff_testbed::Postgres::shared().create_database("server");
    for _ in 0..2 {
        Server::start(options(StoreUrl::new(url.clone()))).await.unwrap().shutdown().await;
    }
    tracing::info!("what is logged is seen");
    let log_text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log_text.contains("what is logged is seen"), "{log_text}");
    assert!(!log_text.contains("already exists"), "{log_text}");
}
