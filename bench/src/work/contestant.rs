//! The interface of a contestant, and its processes.
//!
//! A process initialises itself, prints `ready`, and waits for a line; the measurement starts when the line
//! is written. A submitting process ends after the last submission; a working process is killed when no job
//! is left.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A system that accepts jobs and processes them. A separate process plays each role.
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

/// The table of the jobs, and which of them are not durably completed.
#[derive(Clone, Copy)]
pub(super) struct Unfinished {
    pub(super) table: &'static str,
    /// The column that identifies jobs; it has an index and increases.
    pub(super) id: &'static str,
    /// The condition that an unfinished job meets, in a table that keeps the others.
    pub(super) condition: &'static str,
}

/// Returns the directory of the peers' files in the source tree.
pub(super) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Returns the directory in which peers are installed and built: beside this program, never in the source
/// tree.
pub(super) fn installed() -> Result<PathBuf, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let target =
        program.parent().and_then(Path::parent).ok_or("this program is not in a target directory")?;
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

/// A process that waits for the start signal, then plays its role.
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the process and waits until it is ready.
    pub(super) fn ready(mut command: Command) -> Result<Self, String> {
        let shown = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot run {shown}: {error}"))?;
        let output = child.stdout.take().ok_or("the pipe to the process is missing")?;
        let mut process = Self { child, output: BufReader::new(output) };
        let mut line = String::new();
        match process.output.read_line(&mut line) {
            Ok(_) if line.trim_end() == "ready" => Ok(process),
            _ => Err(format!("{shown} did not print `ready`")),
        }
    }

    pub(crate) fn go(&mut self) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("the pipe to the process is missing")?;
        input
            .write_all(b"go\n")
            .and_then(|()| input.flush())
            .map_err(|error| format!("cannot write to the process: {error}"))
    }

    /// Waits until the process ends by itself, with success.
    pub(super) fn end(mut self) -> Result<(), String> {
        let drained = self.output.read_to_end(&mut Vec::new());
        let status = drained
            .and_then(|_| self.child.wait())
            .map_err(|error| format!("cannot wait for the process: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the process ended with {status}")) }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Wraps a program that does not know this protocol.
pub(super) fn gated(program: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", r#"echo ready; read -r go; exec "$0" "$@""#]);
    shell.arg(program.get_program()).args(program.get_args());
    shell
}

/// The process's side of the protocol: reports that it is ready, and waits for the start signal.
pub(super) fn wait_for_go() -> Result<(), String> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).map(drop).map_err(|error| error.to_string())
}
