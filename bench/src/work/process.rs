//! The processes of a contestant.
//!
//! A process initialises itself, prints `ready`, and waits for a line; the measurement starts when the line
//! is written. A submitting process ends after the last submission; a working process is killed when no job
//! is left.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

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
        let output = child.stdout.take().ok_or("a pipe that was asked for is missing")?;
        let mut process = Self { child, output: BufReader::new(output) };
        let mut line = String::new();
        match process.output.read_line(&mut line) {
            Ok(_) if line.trim_end() == "ready" => Ok(process),
            _ => Err(format!("{shown} does not get ready")),
        }
    }

    pub(crate) fn go(&mut self) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("a pipe that was asked for is missing")?;
        input
            .write_all(b"go\n")
            .and_then(|()| input.flush())
            .map_err(|error| format!("not listening: {error}"))
    }

    /// Waits until the process ends by itself, with success.
    pub(super) fn end(mut self) -> Result<(), String> {
        let drained = self.output.read_to_end(&mut Vec::new());
        let status =
            drained.and_then(|_| self.child.wait()).map_err(|error| format!("lost sight: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
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
