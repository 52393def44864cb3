//! The controlling side: sends commands to a node's process, pauses it and kills it.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::process::Stdio;

use holdoff_testbed::libfaketime;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{MARK, NAMESPACE, RESOURCE, STORE, process_name};

/// A node in a process of its own. Dropping this value kills it.
pub(crate) struct Process {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process, optionally with a wrong clock, and waits until it has opened its store.
    pub(crate) async fn start(store: &str, namespace: &str, resource: &str, skew: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([&process_name(), "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(STORE, store).env(NAMESPACE, namespace).env(RESOURCE, resource);
        if let Some(skew) = skew {
            let library = libfaketime().expect("libfaketime: run `cargo xtask test`, or install faketime");
            command.env("LD_PRELOAD", library).env("FAKETIME", skew).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, commands, answers };
        assert_eq!(process.answer().await, "ready");
        process
    }

    /// Sends a command, and waits for the response.
    pub(crate) async fn ask(&mut self, command: &str) -> String {
        self.tell(command).await;
        self.answer().await
    }

    pub(crate) async fn tell(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> String {
        let answering = async {
            loop {
                let line = self.answers.next_line().await.unwrap().expect("the process has ended");
                // The first response follows the output of the test harness.
                if let Some((_, answer)) = line.split_once(MARK) {
                    return answer.to_owned();
                }
            }
        };
        tokio::time::timeout(CONDITION_TIMEOUT, answering).await.expect("the process does not answer")
    }

    /// Waits for a grant, and returns its token.
    pub(crate) async fn granted(&mut self) -> u64 {
        let answer = self.answer().await;
        let token = answer.strip_prefix("granted ").unwrap_or_else(|| panic!("{answer}"));
        token.parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }
}

impl Drop for Process {
    /// Removes the files that libfaketime leaves behind when its process is killed.
    fn drop(&mut self) {
        let Some(id) = self.child.id() else { return };
        for name in ["sem.faketime_sem", "faketime_shm"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{name}_{id}"));
        }
    }
}
