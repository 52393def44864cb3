//! The interface of a contestant.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A system that accepts jobs and processes them. A separate process plays each role; see
/// [`process`](super::process) for the protocol between the benchmark and these processes.
pub(super) trait Contestant {
    fn name(&self) -> String;

    /// Returns whether jobs are claimed and completed in batches. A contestant without batches gets fewer
    /// jobs.
    fn is_batched(&self) -> bool {
        true
    }

    /// Installs the contestant's programs, or returns the reason of the failure.
    fn install(&self) -> Result<(), String>;

    /// Returns the command that creates its tables in an empty database.
    fn migrate(&self, url: &str) -> Command;

    /// Returns the command that submits this many jobs that do nothing, [`SUBMIT_BATCH`](super::SUBMIT_BATCH)
    /// at a time.
    fn submit(&self, url: &str, jobs: u32) -> Command;

    /// Returns the command that processes jobs until it is killed.
    fn work(&self, url: &str) -> Command;

    fn unfinished(&self) -> Unfinished;
}

/// The table of the jobs that are not durably completed.
pub(super) struct Unfinished {
    pub(super) table: &'static str,
    /// The column that identifies jobs; it has an index and increases.
    pub(super) id: &'static str,
}

/// Returns the directory of the peers' files in the source tree.
pub(super) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Returns the directory in which peers are installed and built: beside this program, never in the source
/// tree.
pub(super) fn installed() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("where are we? {error}"))?;
    let target = program.parent().and_then(Path::parent).ok_or("our program is in no target directory")?;
    Ok(target.join("bench-peers"))
}

/// Runs a program to its end.
pub(super) fn run(command: &mut Command) -> Result<(), String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(5).collect();
    Err(format!("{shown} failed: {}", last.into_iter().rev().collect::<Vec<_>>().join("\n  ")))
}
