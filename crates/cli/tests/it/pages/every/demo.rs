//! The demo, long enough for something to be seen on every page.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::pages::until;

/// As long as its mail service is down once, and the trouble of that has passed.
const LASTS: Duration = Duration::from_secs(75);

/// The demo; it ends with this.
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
        // It goes on telling, and must not be kept from it.
        std::thread::spawn(move || lines.for_each(drop));
        let url = greeting.split_whitespace().next().unwrap().to_owned();
        let demo = Self { process, url, _folder: folder };
        // What is pictured is what happened over this time: there is nothing else to wait for.
        tokio::time::sleep(LASTS).await;
        demo
    }

    /// A step that was tried often, and what came of it.
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
        // Told to end, it takes its own workers and folders with it.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}
