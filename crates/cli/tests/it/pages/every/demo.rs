//! The demo, run for long enough that every page has content.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::pages::until;

/// Long enough for one outage of the mail service and the recovery from it.
const LASTS: Duration = Duration::from_secs(75);

/// The demo. It ends when this value is dropped.
pub(super) struct Demo {
    process: Child,
    pub(super) url: String,
    _folder: tempfile::TempDir,
}

impl Demo {
    pub(super) async fn play() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_holdoff"))
            .args(["demo", "--listen", "127.0.0.1:0"])
            .env("TMPDIR", folder.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let greeting = lines.next().expect("it says where it is");
        // Drains stdout, so that the demo does not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let url = greeting.split_whitespace().next().unwrap().to_owned();
        let demo = Self { process, url, _folder: folder };
        // The screenshots show the events of this period, so there is no condition to wait for.
        tokio::time::sleep(LASTS).await;
        demo
    }

    /// Returns the page of a step with many attempts.
    pub(super) async fn step(&self) -> String {
        let asked = format!("{}/v1/steps?operation=payments.*&min_failures=3&limit=1", self.url);
        let mut steps = Value::Null;
        until("a step has failed several times", async || {
            steps = reqwest::get(&asked).await.unwrap().json().await.unwrap();
            steps["items"][0]["id"].is_string()
        })
        .await;
        format!("/steps/{}", steps["items"][0]["id"].as_str().unwrap())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // On SIGTERM the demo also ends its workers and removes its folders.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}
