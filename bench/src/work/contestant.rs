//! Who can take part.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Somebody who takes jobs in and gets them done. Each part is played by a process of its own; see
/// [`process`](super::process) for what the bench and these processes say to each other.
pub(super) trait Contestant {
    fn name(&self) -> String;

    /// Whether jobs are claimed and completed many at a time. Who takes them one by one gets fewer.
    fn is_batched(&self) -> bool {
        true
    }

    /// Makes its programs ready; if they cannot be, says why.
    fn install(&self) -> Result<(), String>;

    /// Makes its tables in an empty database, and ends.
    fn migrate(&self, url: &str) -> Command;

    /// Takes in so many jobs that do nothing, [`SUBMIT_BATCH`](super::SUBMIT_BATCH) at a time, and ends.
    fn submit(&self, url: &str, jobs: u32) -> Command;

    /// Gets jobs done, until killed.
    fn work(&self, url: &str) -> Command;

    fn unfinished(&self) -> Unfinished;
}

/// Where jobs are until they are durably done.
pub(super) struct Unfinished {
    pub(super) table: &'static str,
    /// The column that tells jobs apart; it has an index, and grows.
    pub(super) id: &'static str,
}

/// The files of the peers in the source tree.
pub(super) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Where peers are installed and built: beside our own program, never in the source tree.
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
