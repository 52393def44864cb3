//! Test fixtures: a daemon, a client, and a server for the daemon to call.

mod target;

use holdoff_testbed::CONDITION_TIMEOUT;
use std::time::Duration;

use holdoff_server::{Options, Server, StoreUrl};
use reqwest::{Client, Response};
use serde_json::{Value, json};

pub(crate) use target::Target;

/// A daemon on a port of its own.
pub(crate) struct Daemon {
    pub(crate) server: Server,
    pub(crate) url: String,
    pub(crate) client: Client,
}

/// Options with policies of short waits.
pub(crate) fn options(place: StoreUrl) -> Options {
    let mut options = Options::new(place);
    options.listen.set_port(0);
    let file = "[policies.quick]\nextends = \"standard\"\nbase = \"10ms\"\ncap = \"20ms\"\n[operations]\n\"*\" = \"quick\"";
    options.policies = holdoff_policy::PolicySet::from_toml(file).unwrap();
    options
}

/// Prints the log of this process's daemons when a test fails.
pub(crate) fn show_logs() {
    let logs = tracing_subscriber::fmt().with_test_writer().with_max_level(tracing::Level::INFO);
    let _ = logs.try_init();
}

impl Daemon {
    pub(crate) async fn start(place: StoreUrl) -> Self {
        Self::start_with(options(place)).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        show_logs();
        let server = Server::start(options).await.unwrap();
        let url = server.url();
        Self { server, url, client: Client::new() }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client.get(format!("{}{path}", self.url)).send().await.unwrap()
    }

    pub(crate) async fn post(&self, body: &Value) -> Response {
        self.client.post(format!("{}/v1/tasks", self.url)).json(body).send().await.unwrap()
    }

    /// Posts a body to a path.
    pub(crate) async fn send(&self, path: &str, body: &Value) -> Response {
        self.client.post(format!("{}{path}", self.url)).json(body).send().await.unwrap()
    }

    /// Submits a task and returns its id.
    pub(crate) async fn submit(&self, body: &Value) -> String {
        let response = self.post(body).await;
        let status = response.status();
        let answer: Value = response.json().await.unwrap();
        assert_eq!(status, 201, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn task(&self, id: &str) -> Value {
        self.get(&format!("/v1/tasks/{id}")).await.json().await.unwrap()
    }

    /// Polls the task until the condition holds.
    pub(crate) async fn until(&self, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Value::Null;
        let look = async {
            loop {
                seen = self.task(id).await;
                if is_so(&seen) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(CONDITION_TIMEOUT, look).await;
        assert!(in_time.is_ok(), "the task did not reach the expected state: {seen:#}");
        seen
    }

    pub(crate) async fn until_over(&self, id: &str) -> Value {
        self.until(id, |task| task["state"] != "running").await
    }
}

/// A task of one request.
pub(crate) fn call(operation: &str, url: &str) -> Value {
    json!({ "operation": operation, "http": { "url": url, "body": { "n": 1.50 } } })
}

/// Returns the body of a response, which must have this status.
pub(crate) async fn answer(response: Response, status: u16) -> Value {
    let (found, url) = (response.status(), response.url().clone());
    let text = response.text().await.unwrap();
    assert_eq!(found, status, "{url}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// A store of its own for each test.
pub(crate) enum Stores {
    Sqlite(tempfile::TempDir),
    Postgres,
}

impl Stores {
    pub(crate) fn place(&self) -> StoreUrl {
        match self {
            Self::Sqlite(folder) => StoreUrl::in_directory(folder.path().join("data")),
            Self::Postgres => StoreUrl::new(holdoff_testbed::Postgres::shared().create_database("server")),
        }
    }
}

/// Instantiates tests for both stores.
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::support::Stores::Sqlite(tempfile::tempdir().unwrap())).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::support::Stores::Postgres).await;
            })*
        }
    };
}
pub(crate) use on_both_stores;
