//! Acceptors as processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;

/// Where acceptors run, and how one of them is cut off.
pub(crate) trait Place {
    /// How to run a command where the acceptor with this number is.
    fn command(&self, number: usize, program: &str) -> Command;

    /// Where it listens; port 0 is any that is free.
    fn listen(&self, number: usize) -> String;

    /// From now on nobody hears of it.
    fn cut_off(&mut self, number: usize, acceptor: &Process);

    /// It is as before.
    fn heal(&mut self, number: usize, acceptor: &Process);
}

/// An acceptor that can be killed, and come back with or without its disk.
pub(crate) struct Acceptor {
    number: usize,
    directory: PathBuf,
    process: Process,
    /// Who and where, as it said.
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

    /// Killed, and started again without what it has promised.
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
