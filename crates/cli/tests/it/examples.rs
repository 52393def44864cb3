//! The examples in other languages, run against the real daemon.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A daemon that ends with its test.
struct Daemon {
    process: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_holdoff"))
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--data", "data", "--log", "warn"])
            .current_dir(folder.path())
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let greeting: serde_json::Value = serde_json::from_str(&line).unwrap();
        let url = greeting.get("url").and_then(serde_json::Value::as_str).unwrap().to_owned();
        Self { process, url, _folder: folder }
    }

    /// Runs a program with the daemon's URL. Returns its output.
    fn run(&self, program: &str, file: &str) -> Vec<String> {
        let output = Command::new(program)
            .args([&format!("../../examples/{file}"), &self.url])
            .env_remove("HOLDOFF_API_TOKEN")
            .output()
            .unwrap_or_else(|error| panic!("{program} is missing: `cargo xtask test` installs it: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{file}: {errors}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const SAID: [&str; 4] = [
    "task succeeded 200",
    "sent twice under one key: one task",
    "signals: 3 of one task",
    "lock: tokens grow",
];

#[test]
fn python() {
    assert_eq!(Daemon::start().run("python3", "client.py"), SAID);
}

#[test]
fn javascript() {
    assert_eq!(Daemon::start().run("node", "client.mjs"), SAID);
}

#[test]
fn curl() {
    let expected = [
        "sent twice under one key: one task",
        "task succeeded",
        "signals: 2 of one task",
        "lock: acquired, renewed and released",
    ];
    assert_eq!(Daemon::start().run("sh", "client.sh"), expected);
}
