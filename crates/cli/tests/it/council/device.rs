//! Devices: one directory per device, and one process per command.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A device between its commands.
#[derive(Clone)]
pub(crate) struct Device {
    directory: PathBuf,
}

impl Device {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_within("60s", words)
    }

    fn command_within(&self, deadline: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["council", "--json", "--deadline", deadline, "--dir"]).arg(&self.directory).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn spawn(&self, words: &[&str]) -> Child {
        self.command(words).spawn().unwrap()
    }

    /// Runs a command to its end and returns its response.
    pub(crate) fn run(&self, words: &[&str]) -> Value {
        answer(words, &self.command(words).output().unwrap())
    }

    /// Runs a command with this deadline.
    pub(crate) fn run_within(&self, deadline: &str, words: &[&str]) -> Value {
        answer(words, &self.command_within(deadline, words).output().unwrap())
    }

    /// Runs a command and kills it after each of these delays. Then it runs the command to its end, with the same
    /// operation id.
    pub(crate) fn run_killed(&self, words: &[&str], after: &[Duration]) -> Value {
        for after in after {
            let mut child = self.spawn(words);
            std::thread::sleep(*after);
            child.kill().unwrap();
            child.wait().unwrap();
        }
        self.run(words)
    }
}

/// Returns the response, which is the last line. The outcome "not committed" is a valid response.
pub(crate) fn answer(words: &[&str], output: &Output) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last = out.lines().last().unwrap_or_default();
    match serde_json::from_str(last) {
        Ok(value) if matches!(output.status.code(), Some(0 | 75)) => value,
        _ => panic!("{words:?} has ended with {:?}: {out}{err}", output.status.code()),
    }
}
