//! A process that ends with its test, also on panic.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Process(Child);

impl Process {
    /// Starts the process. Dropping the value kills it.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Reads the first lines of its output.
    pub(crate) fn greeting<const N: usize>(&mut self) -> [String; N] {
        let output = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let lines: Vec<String> = output.take(N).map(Result::unwrap).collect();
        lines.try_into().expect("the process prints its greeting")
    }

    /// Returns the lines of its output as they arrive.
    pub(crate) fn lines(&mut self) -> impl Iterator<Item = String> + Send + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns the resident memory of the process, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Sends SIGKILL, so that the process cannot shut down.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends SIGTERM and waits for the exit. Returns the exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        self.signal("-TERM");
        let end = Instant::now() + CONDITION_TIMEOUT;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "the process does not exit within {CONDITION_TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
