//! Acceptors as processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;

/// The environment in which acceptors run, and the way to isolate one of them.
pub(crate) trait Place {
    /// Returns a command in the environment of the acceptor with this number.
    fn command(&self, number: usize, program: &str) -> Command;

    /// Returns the acceptor's listen address. Port 0 selects any free port.
    fn listen(&self, number: usize) -> String;

    /// Isolates the acceptor, so that it answers no device.
    fn cut_off(&mut self, number: usize, acceptor: &Process);

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
    pub(crate) fn start(place: &impl Place, number: usize, directory: &Path) -> Self {
        let directory = directory.join(format!("acceptor-{number}"));
        let (process, name) = start(place, number, &directory, &place.listen(number));
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
    pub(crate) fn kill_and_wipe(&mut self, place: &impl Place) {
        self.process.kill();
        std::fs::remove_file(self.directory.join("acceptor.redb")).unwrap();
        let address = self.address().to_owned();
        let before = self.name.clone();
        (self.process, self.name) = start(place, self.number, &self.directory, &address);
        assert_eq!(self.name, before, "its key is still there");
    }
}

fn start(place: &impl Place, number: usize, directory: &Path, listen: &str) -> (Process, String) {
    let mut command = place.command(number, env!("CARGO_BIN_EXE_holdoff"));
    command.args(["acceptor", "--json", "--allow", "anyone", "--listen", listen, "--data"]).arg(directory);
    let mut process = Process::start(&mut command);
    let [greeting] = process.greeting();
    let greeting: serde_json::Value = serde_json::from_str(&greeting).unwrap();
    (process, greeting["acceptor"].as_str().unwrap().to_owned())
}
