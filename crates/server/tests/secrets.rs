//! Planted secrets must not appear in the log at its most verbose level, in responses, metrics or errors, or in the
//! store.
//!
//! A separate binary, because it reads the log of the whole process at its most verbose level, from all threads.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "it/support/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "only the other tests use the rest of the module")]
mod support;

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use holdoff_server::{NewToken, Server, StoreUrl, TokenScope};
use holdoff_testbed::Postgres;
use serde_json::{Value, json};
use support::{Daemon, Target, options};
use tracing_subscriber::fmt::MakeWriter;

const STEP_SECRET: &str = "planted-step-credential-7b1e";
const HOOK_SECRET: &str = "planted-webhook-secret-93fc";
const PASSWORD: &str = "planted-database-password-51aa";

/// Everything that the process logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The collected outputs, each with its source.
#[derive(Default)]
struct Findings(Vec<(String, Vec<u8>)>);

impl Findings {
    fn note(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((place.into(), bytes.into()));
    }

    /// Fails if a secret appears in an output. Also fails if the public text appears in none: then the check has read
    /// nothing.
    fn check(&self, secrets: &[&str], public: &str) {
        let contains =
            |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        for (place, bytes) in &self.0 {
            for (number, secret) in secrets.iter().enumerate() {
                assert!(!contains(bytes, secret), "secret {number} stands in {place}");
            }
        }
        for place in ["log", "store"] {
            let seen = self.0.iter().filter(|(name, _)| name.starts_with(place));
            assert!(
                seen.into_iter().any(|(_, bytes)| contains(bytes, public)),
                "the search covered no {place}"
            );
        }
    }
}

/// Uses every secret on this store. Returns the token that was used, and all outputs.
async fn use_every_secret(place: StoreUrl, folder: &Path) -> (String, Findings) {
    let mut findings = Findings::default();
    let (step_file, hook_file) = (folder.join("step"), folder.join("hook"));
    std::fs::write(&step_file, STEP_SECRET).unwrap();
    std::fs::write(&hook_file, HOOK_SECRET).unwrap();
    let (target, hook) = (Target::start(&[503, 401]).await, Target::start(&[]).await);
    let host = |url: &str| url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let file = format!(
        "[http]\nallow = [\"127.0.0.1\"]\n[[work.notify]]\nurl = \"{}\"\ncredential = \"hook\"\n\
         [credentials.api]\nkind = \"token\"\ntoken = {{ file = \"{}\" }}\nhosts = [\"{}\"]\n\
         [credentials.hook]\nkind = \"token\"\ntoken = {{ file = \"{}\" }}\n",
        hook.url,
        step_file.display(),
        host(&target.url),
        hook_file.display(),
    );
    let mut options = options(place.clone());
    options.settings = holdoff_work::Settings::from_toml(&file).unwrap();
    options.server.require_tokens = true;
    findings.note("debug of the options", format!("{options:?}"));
    let daemon = Daemon::start_with(options).await;
    let issued =
        daemon.server.token_store().issue(&NewToken::new("public-name", TokenScope::Admin)).await.unwrap();
    let token = issued.token.clone();
    findings.note("debug of a token", format!("{issued:?} {:?}", daemon.server));

    let send = async |method: reqwest::Method, path: &str, body: Option<Value>, token: &str| {
        let request = daemon.client.request(method, format!("{}{path}", daemon.url)).bearer_auth(token);
        let request = body.iter().fold(request, reqwest::RequestBuilder::json);
        let answer = request.send().await.unwrap();
        format!("{:?}\n{}", answer.headers().clone(), answer.text().await.unwrap())
    };
    let (get, post) = (reqwest::Method::GET, reqwest::Method::POST);
    let call = |url: &str| json!({ "operation": "public.call", "http": { "url": url, "credential": "api" } });
    let mut ids = Vec::new();
    // One task succeeds in the end. The other may not call its address, so that a notification is sent.
    for url in [target.url.as_str(), &hook.url] {
        let answer = send(post.clone(), "/v1/tasks", Some(call(url)), &token).await;
        let (_, body) = answer.split_once('\n').unwrap();
        let task: Value = serde_json::from_str(body).unwrap();
        ids.push(task["id"].as_str().unwrap().to_owned());
        findings.note("answer to a task", answer);
    }
    target.called(3).await;
    hook.called(1).await;
    for id in &ids {
        let path = format!("/v1/tasks/{id}?payloads=true");
        loop {
            let answer = send(get.clone(), &path, None, &token).await;
            let is_over = !answer.contains("\"state\":\"running\"");
            findings.note("a task", answer);
            if is_over {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    let sent = |calls: Vec<(axum::http::HeaderMap, String)>, secret: &str| {
        calls.iter().any(|(headers, _)| {
            headers.get("authorization").is_some_and(|sent| sent == &format!("Bearer {secret}"))
        })
    };
    assert!(sent(target.calls(), STEP_SECRET), "the request carries the step's secret");
    assert!(sent(hook.calls(), HOOK_SECRET), "the notification carries the webhook's secret");

    // Refused requests with tokens that are almost right.
    let (head, _) = token.rsplit_once('_').unwrap();
    for almost in
        [format!("{token}0"), format!("{head}_{}", "0".repeat(64)), token.replacen("holdoff_", "", 1)]
    {
        findings.note("a refusal", send(get.clone(), "/v1/audit", None, &almost).await);
    }
    let body = json!({ "key": "public" });
    findings.note("a deed", send(post.clone(), "/v1/locks/force-release", Some(body), &token).await);
    for path in ["/", "/metrics", "/readyz", "/v1/audit", "/v1/locks", "/nowhere"] {
        findings.note(format!("GET {path}"), send(get.clone(), path, None, &token).await);
    }
    findings.note("records", format!("{:?}", daemon.server.token_store().tokens().await.unwrap()));
    daemon.server.shutdown().await;
    (token, findings)
}

/// One test covers both stores, because a process has one log.
#[tokio::test]
async fn no_output_contains_a_secret() {
    let log = Log::default();
    let logs = tracing_subscriber::fmt().with_writer(log.clone()).with_max_level(tracing::Level::TRACE);
    logs.with_ansi(false).try_init().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (token, mut findings) = use_every_secret(StoreUrl::in_directory(&data), folder.path()).await;
    for file in std::fs::read_dir(&data).unwrap() {
        let path = file.unwrap().path();
        findings.note(format!("store {}", path.display()), std::fs::read(&path).unwrap());
    }
    let secret = token.rsplit('_').next().unwrap();
    findings.note("log", log.0.lock().unwrap().clone());
    findings.check(&[secret, STEP_SECRET, HOOK_SECRET], "public");

    // The log of Postgres is searched too.
    let postgres = Postgres::start();
    let url = postgres.create_database("secrets");
    let name = url.rsplit('/').next().unwrap();
    let with_password = url.replace("postgres@", &format!("postgres:{PASSWORD}@"));
    let (token, mut findings) = use_every_secret(StoreUrl::new(&with_password), folder.path()).await;
    let dump =
        Command::new(postgres.bin("pg_dump")).args(["--dbname", &postgres.url(name)]).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    findings.note("store, dumped", dump.stdout);
    findings.note("log of the database", postgres.log());
    // The errors of an unreachable store and of an invalid address.
    let wrong = [
        format!("{with_password}_not_there"),
        with_password.replace("127.0.0.1", "127.0.0.1:no-port"),
        format!("postgres://127.0.0.1:no-port/x?password={PASSWORD}"),
        format!("postgres://me:with@{PASSWORD}@127.0.0.1:no-port/x"),
    ];
    for wrong in wrong {
        let refused = Server::start(options(StoreUrl::new(wrong.clone()))).await.unwrap_err();
        findings.note("an error", format!("{refused} {refused:?}"));
        let refused = holdoff_server::TokenStore::open(&wrong).await.unwrap_err();
        findings.note("an error", format!("{refused} {refused:?}"));
    }
    let secret = token.rsplit('_').next().unwrap();
    findings.note("log", log.0.lock().unwrap().clone());
    findings.check(&[secret, STEP_SECRET, HOOK_SECRET, PASSWORD], "public");
}
