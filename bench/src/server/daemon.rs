//! The release binary of the daemon.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A daemon that stops with the benchmark.
pub(crate) struct Daemon {
    process: Child,
    /// Host and port.
    pub(crate) address: String,
}

impl Daemon {
    /// Starts the daemon and waits until it serves.
    pub(crate) fn start(store: &str) -> Result<Self, String> {
        let program = program()?;
        let mut process = Command::new(&program)
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--log", "warn", "--store", store])
            .env_remove("RUST_LOG")
            // The history of the benchmark must not be pruned during the measurement.
            .env("HOLDOFF_WORK_HISTORY_KEEP", "90d")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        let output = process.stdout.take().ok_or("a pipe that was asked for is missing")?;
        let mut daemon = Self { process, address: String::new() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let greeting: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let url = greeting.get("url").and_then(serde_json::Value::as_str).unwrap_or_default();
        let address = url.strip_prefix("http://").ok_or("the daemon does not say where it serves")?;
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
