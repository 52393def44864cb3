//! The environments of daemons, and the access to them.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use holdoff_testbed::CONDITION_TIMEOUT;
use serde_json::Value;

/// The environment in which daemons run.
pub(crate) trait Environment {
    /// Returns the access to the daemon with this number.
    fn access(&self, number: usize) -> DaemonAccess;

    /// Returns the address of its node for other nodes.
    fn node(&self, number: usize) -> String;
}

/// The access to run a command in the environment of a daemon, and the daemon's address there.
#[derive(Clone, Debug)]
pub(crate) struct DaemonAccess {
    /// The words before a command.
    pub(crate) before: Vec<String>,
    /// The HTTP address of the daemon.
    pub(crate) listen: String,
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) json: Value,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl DaemonAccess {
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
    pub(crate) fn json_command(&self, words: &[&str]) -> Command {
        let mut command = self.text_command(words);
        command.arg("--json");
        command
    }

    /// Returns `holdoff ledger` with the daemon's URL and human-readable output.
    pub(crate) fn text_command(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["ledger", "--url", &format!("http://{}", self.listen)]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
        command
    }

    /// Runs a command against the daemon and returns its output.
    pub(crate) fn try_run(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(&self.json_command(words).output().unwrap())
    }

    /// Runs a command and asserts that it succeeds.
    pub(crate) fn run(&self, words: &[&str]) -> Value {
        let output = self.try_run(words);
        assert_eq!(output.code, 0, "{words:?}: {output:?}");
        output.json
    }

    /// Returns the status of the daemon's node, or null if it does not answer.
    pub(crate) fn status(&self) -> Value {
        self.try_run(&["status"]).json
    }
}

impl CommandOutput {
    pub(crate) fn of(output: &Output) -> Self {
        let [out, err] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
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

impl Environment for Loopback {
    fn access(&self, number: usize) -> DaemonAccess {
        DaemonAccess { before: Vec::new(), listen: format!("127.0.0.1:{}", self.ports[number].0) }
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
            Err(seen) => assert!(Instant::now() < end, "timed out waiting: {what}, but {seen}"),
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Network namespaces and the bridges between them. Dropping the value removes them.
pub(crate) struct Namespaces {
    name: String,
    net: u32,
    count: usize,
}

impl Namespaces {
    /// Creates this number of namespaces, if the user has the permission.
    pub(crate) fn create(count: usize) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (id, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // From here on, dropping `made` removes everything created so far.
        let made = Self { name: format!("hl{}{number}", id % 100_000), net: (id * 8 + number) % 250, count };
        let Self { name, net, .. } = &made;
        for side in ["", "x"] {
            ip(&format!("link add {name}{side} type bridge"))?;
            ip(&format!("link set {name}{side} up"))?;
        }
        for number in 0..count {
            let (space, host) = (made.space(number), number + 1);
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {space} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set {space} master {name} up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} addr add 10.214.{net}.{host}/24 dev eth0"))?;
            ip(&format!("-n {space} link set eth0 up"))?;
        }
        Ok(made)
    }

    /// Partitions the network: these daemons on one side, all others on the other side.
    pub(crate) fn partition(&self, numbers: &[usize]) {
        self.plug(numbers, "x");
    }

    /// Heals the partition.
    pub(crate) fn heal(&self) {
        self.plug(&(0..self.count).collect::<Vec<_>>(), "");
    }

    fn plug(&self, numbers: &[usize], side: &str) {
        for number in numbers {
            ip(&format!("link set {} master {}{side}", self.space(*number), self.name)).unwrap();
        }
    }

    fn space(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }
}

impl Environment for Namespaces {
    fn access(&self, number: usize) -> DaemonAccess {
        let before = ["ip", "netns", "exec", &self.space(number)].map(str::to_owned);
        DaemonAccess { before: before.to_vec(), listen: "127.0.0.1:7070".to_owned() }
    }

    fn node(&self, number: usize) -> String {
        format!("10.214.{}.{}:4848", self.net, number + 1)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for number in 0..self.count {
            let _ = ip(&format!("link del {}", self.space(number)));
            let _ = ip(&format!("netns del {}", self.space(number)));
        }
        for side in ["", "x"] {
            let _ = ip(&format!("link del {}{side}", self.name));
        }
    }
}

fn ip(words: &str) -> Result<(), String> {
    let result =
        Command::new("ip").args(words.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if result.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&result.stderr).trim()))
}
