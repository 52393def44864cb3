//! A daemon in a separate process.

use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::Client;
use serde_json::Value;

use crate::process::Process;

/// The binary under test.
pub(crate) const HOLDOFF: &str = env!("CARGO_BIN_EXE_holdoff");

/// A daemon that ends with its test.
pub(crate) struct Node {
    process: Process,
    pub(crate) url: String,
    pub(crate) client: Client,
    how: How,
}

/// The parameters to start the daemon and to start it again.
#[derive(Clone)]
struct How {
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
        let how = How { program: HOLDOFF.into(), store: store.into(), config: config.into(), grace };
        Self::launch(how, "127.0.0.1:0")
    }

    pub(crate) fn start_as(program: &Path, store: &str, config: &Path) -> Self {
        let (program, store, config) = (program.to_owned(), store.to_owned(), config.to_owned());
        Self::launch(How { program, store, config, grace: "" }, "127.0.0.1:0")
    }

    fn launch(how: How, listen: &str) -> Self {
        let mut command = Command::new(&how.program);
        command
            .args(["serve", "--json", "--listen", listen, "--log", "warn", "--store", &how.store])
            .arg("--config");
        command.arg(&how.config).env_remove("RUST_LOG");
        if !how.grace.is_empty() {
            command.args(["--grace", how.grace]);
        }
        let mut process = Process::start(&mut command);
        let [greeting] = process.greeting();
        let greeting: Value = serde_json::from_str(&greeting).expect("it says where it serves");
        let url = greeting["url"].as_str().unwrap().to_owned();
        Self { process, url, client: Client::new(), how }
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
        let (how, listen) = (self.how.clone(), self.url.trim_start_matches("http://").to_owned());
        tokio::task::spawn_blocking(move || {
            assert_eq!(self.terminate(), Some(0), "it ends well");
            Self::launch(how, &listen)
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
