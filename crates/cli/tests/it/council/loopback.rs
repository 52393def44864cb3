//! All processes on loopback. Isolation stops the acceptor's process, so that it also receives nothing.

use std::process::Command;

use crate::council::acceptors::Place;
use crate::process::Process;

#[derive(Default)]
pub(crate) struct Loopback;

impl Place for Loopback {
    fn command(&self, _: usize, program: &str) -> Command {
        Command::new(program)
    }

    fn listen(&self, _: usize) -> String {
        "127.0.0.1:0".to_owned()
    }

    fn cut_off(&mut self, _: usize, acceptor: &Process) {
        acceptor.signal("-STOP");
    }

    fn heal(&mut self, _: usize, acceptor: &Process) {
        acceptor.signal("-CONT");
    }
}
