//! A daemon with a ledger node, which can be killed, paused and restarted.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::ledger::place::{Told, Way};
use crate::process::Process;

pub(crate) struct Daemon {
    pub(crate) way: Way,
    /// The address of its node for other members.
    pub(crate) node: String,
    pub(crate) name: String,
    /// The key of its node.
    pub(crate) key: String,
    /// Its additional environment variables.
    pub(crate) variables: Vec<(&'static str, &'static str)>,
    folder: PathBuf,
    process: Option<Process>,
}

impl Daemon {
    /// Creates a daemon without a ledger, which does not run yet.
    pub(crate) fn new(way: Way, node: String, folder: &Path, number: usize) -> Self {
        let name = format!("node-{number}");
        let folder = folder.join(&name);
        std::fs::create_dir_all(folder.join("ledger")).unwrap();
        Self { way, node, name, key: String::new(), variables: Vec::new(), folder, process: None }
    }

    /// Creates a ledger, or joins the ledger of this member, and starts the daemon.
    pub(crate) fn begin(&mut self, member: Option<&str>) {
        let made = self.make(member);
        assert_eq!(made.code, 0, "{made:?}");
        made.json["key"].as_str().unwrap().clone_into(&mut self.key);
        self.start();
    }

    /// Runs the command that creates a ledger or joins the ledger of this member.
    pub(crate) fn make(&self, member: Option<&str>) -> Told {
        let mut words = match member {
            Some(member) => vec!["join", "--member", member, "--address", &self.node],
            None => vec!["init"],
        };
        words.extend(["--data", "data"]);
        Told::of(&self.settled(&mut self.way.offline(&self.folder, &words)).output().unwrap())
    }

    /// Returns the key and address of its node.
    pub(crate) fn contact(&self) -> String {
        format!("{}@{}", self.key, self.node)
    }

    /// Returns the directory with the key and the store of its node.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    pub(crate) fn start(&mut self) {
        let mut command = self.way.command(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["serve", "--json", "--data", "data", "--grace", "0s", "--listen", &self.way.listen]);
        let log = OpenOptions::new().append(true).create(true).open(self.folder.join("log")).unwrap();
        let mut process = Process::start(self.settled(&mut command).stderr(log));
        let [greeting] = process.greeting();
        let greeting: Value = serde_json::from_str(&greeting).unwrap_or_else(|_| panic!("{}", self.log()));
        assert_eq!(greeting["ledger"], self.contact(), "{greeting}");
        self.process = Some(process);
    }

    /// Sets the directory and the identity, for the daemon and for the command that creates its ledger.
    fn settled<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.current_dir(&self.folder).env_remove("RUST_LOG");
        command.env("HOLDOFF_LEDGER_DATA", self.ledger()).envs(self.variables.iter().copied());
        command.env("HOLDOFF_LEDGER_LISTEN", &self.node).env("HOLDOFF_LEDGER_NAME", &self.name)
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// Terminates the daemon and waits for its exit.
    pub(crate) fn terminate(&mut self) {
        assert_eq!(self.process.take().unwrap().terminate(), Some(0), "{}", self.log());
    }

    /// Stops the process with SIGSTOP until it is continued.
    pub(crate) fn pause(&self) {
        self.process.as_ref().unwrap().signal("-STOP");
    }

    pub(crate) fn go_on(&self) {
        self.process.as_ref().unwrap().signal("-CONT");
    }

    /// Returns the complete log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Returns the fields of each log line with this message.
    pub(crate) fn logged(&self, message: &str) -> Vec<Value> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.map(|line| line["fields"].clone()).filter(|fields| fields["message"] == message).collect()
    }

    /// Creates a file beside the ledger that fills the disk.
    pub(crate) fn fill_disk(&self) -> PathBuf {
        let path = self.ledger().join("filler");
        let mut filler = File::create(&path).unwrap();
        let block = vec![7; 64 * 1024];
        while std::io::Write::write_all(&mut filler, &block).is_ok() {}
        path
    }
}
