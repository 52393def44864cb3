//! The daemon under load: tasks accepted over HTTP, one for each request, sent by a separate process.
//!
//! The daemon is the release binary beside this program, with its defaults: every commit waits for the disk,
//! on SQLite (`synchronous=FULL`) and on Postgres (`fsync` on). Connections are kept alive; each sends its
//! next request after the last response. The best of a few rounds counts, because a shared machine loses
//! whole seconds.

pub(crate) mod latency;
mod load;
mod soak;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use holdoff_testbed::{Options, Postgres, postgres_binaries};

use crate::row::Row;
use load::Load;
pub(crate) use load::length;
pub(crate) use soak::soak;

const ROUNDS: usize = 5;
const CONNECTIONS: usize = 64;
/// The history of a benchmark must not be pruned during the measurement.
const KEEP_ALL: &[(&str, &str)] = &[("HOLDOFF_WORK_HISTORY_KEEP", "90d")];
/// A task that no worker executes.
const TASK: &str = r#"{"operation": "nothing", "payload": {"order": 17, "paid": true}}"#;
const ROUND: Duration = Duration::from_secs(5);
/// The required rate of accepted tasks a second.
const BAR: f64 = 5000.0;

/// The defaults of Postgres, except for memory as on a usual server.
const SETTINGS: [(&str, &str); 2] = [("shared_buffers", "256MB"), ("max_wal_size", "4GB")];

/// Acts as the clients, if this process was started for that.
pub(crate) fn play(arguments: &[String]) -> Option<ExitCode> {
    load::play(arguments)
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    match tempfile::tempdir() {
        Ok(folder) => {
            let url = format!("sqlite:{}", folder.path().join("work.db").display());
            rows.extend(measured("SQLite", &url));
        }
        Err(error) => eprintln!("server: SQLite: not measured, {error}"),
    }
    if let Some(server) = postgres() {
        rows.extend(measured("Postgres", &server.create_database("server")));
    }
    rows
}

/// Starts a Postgres whose commits wait for the disk, if it is installed.
fn postgres() -> Option<Postgres> {
    postgres_binaries()?;
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Some(Postgres::start_with(&Options { fsync: true, settings }))
}

fn measured(name: &str, url: &str) -> Vec<Row> {
    measure(name, url).unwrap_or_else(|why| {
        eprintln!("server: {name}: not measured, {why}");
        // A contestant that fails has missed the bar.
        vec![
            Row::beside(&format!("{name}: tasks accepted"), "/s", f64::NAN, ("", f64::NAN))
                .bar("measured", false),
        ]
    })
}

fn measure(name: &str, url: &str) -> Result<Vec<Row>, String> {
    let daemon = Daemon::start(url)?;
    let mut best: Option<Load> = None;
    let mut errors = 0;
    for _ in 0..ROUNDS {
        let load = Load::from_another_process(&daemon.address, CONNECTIONS, None, ROUND, TASK)?;
        eprintln!("server: {name}: {load}");
        errors += load.errors;
        if best.as_ref().is_none_or(|best| load.per_second > best.per_second) {
            best = Some(load);
        }
    }
    let best = best.ok_or("there were no rounds")?;
    let row =
        |what: &str, unit, figure| Row::beside(&format!("{name}: {what}"), unit, figure, ("", f64::NAN));
    Ok(vec![
        row("tasks accepted", "/s", best.per_second)
            .bar(&format!("≥ {BAR:.0}, no error"), best.per_second >= BAR && errors == 0),
        row("response time, median", "ms", best.median_ms),
        row("response time, p99", "ms", best.p99_ms),
        row("memory of the daemon", "MiB", daemon.resident_mib()),
    ])
}

/// A daemon that stops with the benchmark.
pub(crate) struct Daemon {
    process: Child,
    /// Host and port.
    pub(crate) address: String,
}

impl Daemon {
    /// Starts the daemon and waits until it serves.
    pub(crate) fn start(store: &str) -> Result<Self, String> {
        Self::start_with(store, "warn", Stdio::inherit(), KEEP_ALL)
    }

    fn start_with(store: &str, filter: &str, log: Stdio, variables: &[(&str, &str)]) -> Result<Self, String> {
        let program = program()?;
        let mut process = Command::new(&program)
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--log", filter, "--store", store])
            .env_remove("RUST_LOG")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        let output = process.stdout.take().ok_or("the pipe to the process is missing")?;
        let mut daemon = Self { process, address: String::new() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let greeting: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let url = greeting.get("url").and_then(serde_json::Value::as_str).unwrap_or_default();
        let address = url.strip_prefix("http://").ok_or("the daemon did not print its URL")?;
        address.clone_into(&mut daemon.address);
        Ok(daemon)
    }

    /// Returns the resident memory of the daemon.
    pub(crate) fn resident_mib(&self) -> f64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(f64::NAN);
        kib / 1024.0
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the path of `holdoff`, built beside this program.
fn program() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = this.with_file_name("holdoff");
    if program.exists() {
        return Ok(program);
    }
    Err(format!("{} is missing: `cargo xtask bench server` builds it", program.display()))
}
