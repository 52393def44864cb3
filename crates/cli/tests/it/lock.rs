//! `holdoff lock run` with real processes that are killed, are interrupted, or lose the lock.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn holdoff(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
    command.args(["lock", "--data", "data"]).args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).env("NO_COLOR", "1").env_remove("HOLDOFF_STORE");
    command
}

fn output(folder: &Path, arguments: &[&str]) -> Output {
    holdoff(folder, arguments).output().unwrap()
}

fn code(folder: &Path, arguments: &[&str]) -> i32 {
    output(folder, arguments).status.code().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(folder: &Path, key: &str) -> Value {
    serde_json::from_slice(&output(folder, &["show", key, "--json"]).stdout).unwrap()
}

/// A holder whose command prints a line when it has the lock.
struct Holder {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Holder {
    fn start(folder: &Path, options: &[&str], script: &str) -> Self {
        let mut command = holdoff(folder, &["run", "job"]);
        command.args(options).args(["--", "sh", "-c", script]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, name: &str) {
        signal(name, &self.process.id().to_string());
    }

    fn end(self) -> (Option<i32>, String) {
        let output = self.process.wait_with_output().unwrap();
        (output.status.code(), text(&output.stderr))
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

fn is_alive(process: &str) -> bool {
    Command::new("kill").args(["-0", process]).stderr(Stdio::null()).status().unwrap().success()
}

fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < CONDITION_TIMEOUT, "the condition does not hold");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_exit_code_is_passed_through_and_tokens_increase() {
    let folder = tempfile::tempdir().unwrap();
    let token = || {
        let script = "echo $HOLDOFF_KEY $HOLDOFF_NAMESPACE $HOLDOFF_FENCING_TOKEN";
        let printed = text(&output(folder.path(), &["run", "a", "--", "sh", "-c", script]).stdout);
        let number = printed.strip_prefix("a default ").unwrap_or_else(|| panic!("{printed}"));
        number.trim().parse::<u64>().unwrap()
    };
    let mut secret = holdoff(
        folder.path(),
        &["run", "a", "--", "sh", "-c", "echo ${HOLDOFF_API_TOKEN-}${HOLDOFF_STORE-}"],
    );
    let printed =
        secret.env("HOLDOFF_API_TOKEN", "secret").env("HOLDOFF_STORE", "sqlite:b.db").output().unwrap();
    assert_eq!(
        text(&printed.stdout),
        "\n",
        "the command does not get the credentials of its lock: {printed:?}"
    );
    let (first, second) = (token(), token());
    assert!(second > first, "{first}, then {second}");
    assert_eq!(code(folder.path(), &["run", "a", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(code(folder.path(), &["run", "a", "--", "sh", "-c", "kill -9 $$"]), 137);
    assert_eq!(code(folder.path(), &["run", "a", "--", "/no/such/command"]), 127);
    assert_eq!(code(folder.path(), &["run", "a", "--", "/"]), 126);
    assert_eq!(
        shown(folder.path(), "a")["held"],
        false,
        "the lock is released at once, whatever the exit code"
    );
}

#[test]
fn a_waiter_that_times_out_exits_with_75() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Holder::start(folder.path(), &[], "echo held; sleep 60");
    assert_eq!(holder.line(), "held");
    for wait in ["0s", "200ms"] {
        let refused = output(folder.path(), &["run", "job", "--wait", wait, "--", "true"]);
        assert_eq!(refused.status.code(), Some(75), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("held by holdoff-"), "{}", text(&refused.stderr));
    }
    assert_eq!(shown(folder.path(), "job")["waiting"], 0, "no waiter is left");
    let listed = text(&output(folder.path(), &["list", "--held"]).stdout);
    assert!(listed.contains("job") && listed.contains("holdoff-"), "{listed}");
    holder.signal("-TERM");
    assert_eq!(holder.end().0, Some(128 + 15), "the signal is forwarded to the command");
    assert_eq!(shown(folder.path(), "job")["held"], false);
}

#[test]
fn the_lock_of_a_killed_holder_stays_held_until_its_lease_expires() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Holder::start(folder.path(), &["--lease", "4s"], "echo $$; exec sleep 60");
    let orphan = holder.line();
    holder.signal("-KILL");
    holder.process.wait().unwrap();
    assert_eq!(
        code(folder.path(), &["run", "job", "--wait", "0s", "--", "true"]),
        75,
        "the lease has not expired"
    );
    assert_eq!(code(folder.path(), &["run", "job", "--wait", "60s", "--", "true"]), 0);
    signal("-KILL", &orphan);
}

#[test]
fn an_interrupted_or_killed_waiter_leaves_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Holder::start(folder.path(), &[], "echo held; sleep 60");
    holder.line();
    let waiting = || shown(folder.path(), "job")["waiting"].as_u64().unwrap();
    let interrupted = Holder::start(folder.path(), &["--wait", "30s", "--lease", "1s"], "echo never");
    until(|| waiting() == 1);
    interrupted.signal("-INT");
    assert_eq!(interrupted.end().0, Some(130));
    assert_eq!(waiting(), 0);

    let killed = Holder::start(folder.path(), &["--wait", "30s", "--lease", "1s"], "echo never");
    until(|| waiting() == 1);
    killed.signal("-KILL");
    killed.end();
    // The record of a waiter expires when its next poll is overdue.
    until(|| waiting() == 0);
    holder.signal("-INT");
    holder.end();
    assert_eq!(code(folder.path(), &["run", "job", "--wait", "10s", "--", "true"]), 0);
}

#[test]
fn a_lost_lock_ends_the_command_and_its_child_processes() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--lease", "900ms", "--wait", "2s", "--grace", "500ms"];
    // Neither the command nor its child process exits on SIGTERM.
    let script = "trap 'echo asked' TERM; sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo $!; \
                  while :; do sleep 0.1; done";
    let mut holder = Holder::start(folder.path(), &options, script);
    let inner = holder.line();
    assert!(is_alive(&inner));
    let unasked = output(folder.path(), &["release", "job"]);
    assert_eq!(unasked.status.code(), Some(2));
    assert!(text(&unasked.stderr).contains("--force"), "{}", text(&unasked.stderr));
    let forced = text(&output(folder.path(), &["release", "job", "--force"]).stdout);
    let token = forced.rsplit_once("fencing token ").unwrap().1.split(' ').next().unwrap();
    assert!(forced.contains(" is stale now") && token.parse::<u64>().is_ok(), "{forced}");
    assert_eq!(holder.line(), "asked", "the command gets SIGTERM first");
    let (code, printed) = holder.end();
    assert_eq!(code, Some(76), "{printed}");
    assert!(printed.contains(&format!("lost the lock job with fencing token {token}")), "{printed}");
    until(|| !is_alive(&inner));
    assert_eq!(text(&output(folder.path(), &["release", "job", "--force"]).stdout), "job was not held\n");
}
