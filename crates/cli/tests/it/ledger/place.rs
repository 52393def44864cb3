//! The environments of daemons, and the access to them.

pub(crate) use holdoff_testbed::CONDITION_TIMEOUT;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The environment in which daemons run.
pub(crate) trait Place {
    /// Returns the access to the daemon with this number.
    fn way(&self, number: usize) -> Way;

    /// Returns the address of its node for other nodes.
    fn node(&self, number: usize) -> String;
}

/// The way to run a command in the environment of a daemon, and the daemon's address there.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The words before a command.
    pub(crate) before: Vec<String>,
    /// The HTTP address of the daemon.
    pub(crate) listen: String,
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) json: Value,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Way {
    pub(crate) fn command(&self, program: &str) -> Command {
        match self.before.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    /// Returns `holdoff ledger` on a directory, without a daemon.
    pub(crate) fn offline(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["ledger", "--json"]).args(words).current_dir(folder);
        command
    }

    /// Returns `holdoff ledger` with the daemon's URL and JSON output.
    pub(crate) fn asking(&self, words: &[&str]) -> Command {
        let mut command = self.asking_for_people(words);
        command.arg("--json");
        command
    }

    /// Returns `holdoff ledger` with the daemon's URL and human-readable output.
    pub(crate) fn asking_for_people(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["ledger", "--url", &format!("http://{}", self.listen)]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
        command
    }

    /// Runs a command against the daemon and returns its output.
    pub(crate) fn ask(&self, words: &[&str]) -> Told {
        Told::of(&self.asking(words).output().unwrap())
    }

    /// Runs a command and asserts that it succeeds.
    pub(crate) fn must(&self, words: &[&str]) -> Value {
        let told = self.ask(words);
        assert_eq!(told.code, 0, "{words:?}: {told:?}");
        told.json
    }

    /// Returns the status of the daemon's node, or null if it does not answer.
    pub(crate) fn status(&self) -> Value {
        self.ask(&["status"]).json
    }
}

impl Told {
    pub(crate) fn of(output: &Output) -> Self {
        let [out, err] =
            [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
        let json = out.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        Self { code: output.status.code().unwrap_or(-1), json, out, err }
    }
}

/// All daemons on loopback, with separate ports.
pub(crate) struct Loopback {
    ports: Vec<(u16, u16)>,
}

impl Loopback {
    pub(crate) fn new(count: usize) -> Self {
        let port = holdoff_testbed::free_port;
        Self { ports: (0..count).map(|_| (port(), port())).collect() }
    }
}

impl Place for Loopback {
    fn way(&self, number: usize) -> Way {
        Way { before: Vec::new(), listen: format!("127.0.0.1:{}", self.ports[number].0) }
    }

    fn node(&self, number: usize) -> String {
        format!("127.0.0.1:{}", self.ports[number].1)
    }
}

/// Polls until `look` returns a value, or panics after the timeout.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + CONDITION_TIMEOUT;
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(seen) => assert!(Instant::now() < end, "never: {what}, but {seen}"),
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}
