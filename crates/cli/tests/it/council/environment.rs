//! The environments of acceptors, and acceptors as processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;

/// The environment in which acceptors run, and the way to isolate one of them.
pub(crate) trait Environment {
    /// Returns a command in the environment of the acceptor with this number.
    fn command(&self, number: usize, program: &str) -> Command;

    /// Returns the acceptor's listen address. Port 0 selects any free port.
    fn listen(&self, number: usize) -> String;

    /// Isolates the acceptor, so that it answers no device.
    fn isolate(&mut self, number: usize, acceptor: &Process);

    /// Ends the isolation.
    fn heal(&mut self, number: usize, acceptor: &Process);
}

/// An acceptor that can be killed and restarted with or without its disk.
pub(crate) struct Acceptor {
    number: usize,
    directory: PathBuf,
    process: Process,
    /// The acceptor's `KEY@HOST:PORT`, from its greeting.
    pub(crate) name: String,
}

impl Acceptor {
    pub(crate) fn start(environment: &impl Environment, number: usize, directory: &Path) -> Self {
        let directory = directory.join(format!("acceptor-{number}"));
        let (process, name) = start(environment, number, &directory, &environment.listen(number));
        Self { number, directory, process, name }
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn key(&self) -> &str {
        self.name.split_once('@').unwrap().0
    }

    pub(crate) fn address(&self) -> &str {
        self.name.split_once('@').unwrap().1
    }

    /// Kills the acceptor and restarts it without its promises and votes.
    pub(crate) fn kill_and_wipe(&mut self, environment: &impl Environment) {
        self.process.kill();
        std::fs::remove_file(self.directory.join("acceptor.redb")).unwrap();
        let address = self.address().to_owned();
        let before = self.name.clone();
        (self.process, self.name) = start(environment, self.number, &self.directory, &address);
        assert_eq!(self.name, before, "the key is kept");
    }
}

fn start(environment: &impl Environment, number: usize, directory: &Path, listen: &str) -> (Process, String) {
    let mut command = environment.command(number, env!("CARGO_BIN_EXE_holdoff"));
    command.args(["acceptor", "--json", "--allow", "anyone", "--listen", listen, "--data"]).arg(directory);
    let mut process = Process::start(&mut command);
    let [greeting] = process.greeting();
    let greeting: serde_json::Value = serde_json::from_str(&greeting).unwrap();
    (process, greeting["acceptor"].as_str().unwrap().to_owned())
}

#[derive(Default)]
pub(crate) struct Loopback;

impl Environment for Loopback {
    fn command(&self, _: usize, program: &str) -> Command {
        Command::new(program)
    }

    fn listen(&self, _: usize) -> String {
        "127.0.0.1:0".to_owned()
    }

    fn isolate(&mut self, _: usize, acceptor: &Process) {
        acceptor.signal("-STOP");
    }

    fn heal(&mut self, _: usize, acceptor: &Process) {
        acceptor.signal("-CONT");
    }
}

/// Three network namespaces and their bridge. Dropping the value removes them.
pub(crate) struct Namespaces {
    name: String,
    net: u32,
}

const ACCEPTORS: usize = 3;

impl Namespaces {
    /// Creates the namespaces, if the user has the permission.
    pub(crate) fn create() -> Result<Self, String> {
        let id = std::process::id();
        // From here on, dropping `made` removes everything created so far.
        let made = Self { name: format!("ho{}", id % 100_000), net: id % 250 };
        let Self { name, net } = &made;
        ip(&format!("link add {name} type bridge"))?;
        ip(&format!("addr add 10.213.{net}.254/24 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        for number in 0..ACCEPTORS {
            let (space, host) = (made.space(number), number + 1);
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {space} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set {space} master {name} up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} addr add 10.213.{net}.{host}/24 dev eth0"))?;
            ip(&format!("-n {space} link set eth0 up"))?;
        }
        Ok(made)
    }

    fn space(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }
}

impl Environment for Namespaces {
    fn command(&self, number: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(number), program]);
        command
    }

    fn listen(&self, number: usize) -> String {
        format!("10.213.{}.{}:4747", self.net, number + 1)
    }

    fn isolate(&mut self, number: usize, _: &Process) {
        ip(&format!("link set {} down", self.space(number))).unwrap();
    }

    fn heal(&mut self, number: usize, _: &Process) {
        ip(&format!("link set {} up", self.space(number))).unwrap();
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for number in 0..ACCEPTORS {
            let _ = ip(&format!("link del {}", self.space(number)));
            let _ = ip(&format!("netns del {}", self.space(number)));
        }
        let _ = ip(&format!("link del {}", self.name));
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output =
        Command::new("ip").args(words.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
