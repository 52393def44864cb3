//! An operator's tasks with the real binary: deploying policies and reading the log.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::process::Process;

const FILE: &str = "[policies.mine]\nextends = \"standard\"\nattempts = 3\n[operations]\n\"*\" = \"mine\"\n";

fn holdoff(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
    command.args(arguments).args(["--data", "data"]).current_dir(folder).env("NO_COLOR", "1");
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn policies_are_deployed_after_confirmation() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("holdoff.toml"), text).unwrap();
    write(FILE);
    assert!(
        holdoff(folder.path(), &["work", "submit", "order.confirm"]).status.success(),
        "the command creates the store"
    );

    let dry = holdoff(folder.path(), &["policy", "deploy", "--dry-run"]);
    let shown = text(&dry.stdout);
    assert!(shown.contains("policy mine\n") && shown.contains("  + attempts = 3\n"), "{shown}");
    assert!(shown.contains("operation *\n  + mine\n") && shown.contains("nothing was changed"), "{shown}");
    let unasked = holdoff(folder.path(), &["policy", "deploy"]);
    assert_eq!(unasked.status.code(), Some(2));
    assert!(text(&unasked.stderr).contains("add --yes to confirm"), "{}", text(&unasked.stderr));
    assert!(holdoff(folder.path(), &["policy", "deploy", "--yes"]).status.success());

    write(&FILE.replace('3', "4"));
    let applied = holdoff(folder.path(), &["policy", "deploy", "--yes"]);
    assert!(text(&applied.stdout).starts_with("policy mine\n  - attempts = 3\n  + attempts = 4\n\nversion "));
    write("default = \"slow\"\n[policies.slow]\nbase = \"2d\"\ncap = \"2d\"");
    let refused = holdoff(folder.path(), &["policy", "deploy", "--yes"]);
    assert!(text(&refused.stderr).contains("counts as stale"), "{}", text(&refused.stderr));
    let listed = text(&holdoff(folder.path(), &["policy", "versions"]).stdout);
    assert_eq!(listed.lines().count(), 4, "a heading, a line, and two versions: {listed}");
}

/// Starts a daemon in this folder that logs into a file. Returns the process and its address.
fn serve(folder: &Path, format: &str, log: &Path) -> (Process, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--log", "info", "--grace", "0s"])
        .env("HOLDOFF_LOG_FORMAT", format)
        .current_dir(folder)
        .stderr(File::create(log).unwrap());
    let mut daemon = Process::start(&mut command);
    let [greeting] = daemon.greeting();
    let address = greeting.trim().split("http://").nth(1).expect("the daemon prints its URL").to_owned();
    (daemon, address)
}

/// Runs a daemon, deploys policies with a request that has an id, and returns the log.
fn logged(folder: &Path, format: &str) -> String {
    let log = folder.join(format!("{format}.log"));
    let (daemon, address) = serve(folder, format, &log);
    let policies = format!("[policies.{format}]\nextends = \"standard\"");
    let body = serde_json::json!({ "file": policies }).to_string();
    let mut stream = TcpStream::connect(&address).unwrap();
    let (id, length) = ("X-Request-Id: mine-17", body.len());
    let head = format!("Host: {address}\r\n{id}\r\nConnection: close\r\nContent-Type: application/json");
    write!(stream, "POST /v1/policies HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("x-request-id: mine-17"), "{answer}");
    assert_eq!(daemon.terminate(), Some(0));
    std::fs::read_to_string(log).unwrap()
}

#[test]
fn the_log_in_a_file_is_json_by_default_and_has_no_colours() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("holdoff.toml"), FILE).unwrap();
    for format in ["auto", "json"] {
        let log = logged(folder.path(), format);
        let lines: Vec<serde_json::Value> =
            log.lines().map(|line| serde_json::from_str(line).expect("JSON on every line")).collect();
        let entry = lines.iter().find(|line| {
            line["fields"]["message"].to_string().contains("replaced the active policy version")
        });
        assert_eq!(entry.expect(&log)["span"]["id"], "mine-17", "the log contains the request id");
    }
    let log = logged(folder.path(), "pretty");
    assert!(
        log.contains("request{id=mine-17") && log.contains("replaced the active policy version"),
        "{log}"
    );
    assert!(!log.contains('\u{1b}'), "{log}");
}

#[test]
fn a_hangup_reloads_policies_and_reports_ignored_sections() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("holdoff.toml");
    std::fs::write(&file, FILE).unwrap();
    let log = folder.path().join("log");
    let (daemon, _) = serve(folder.path(), "json", &log);
    let after_hangup = |text: &str, expected: &str| {
        std::fs::write(&file, text).unwrap();
        daemon.signal("-HUP");
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let log_text = std::fs::read_to_string(&log).unwrap();
            if log_text.contains(expected) {
                return log_text;
            }
            assert!(Instant::now() < end, "{log_text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let log_text = after_hangup(&FILE.replace('3', "4"), "deployed the policy file");
    assert!(!log_text.contains("need a restart"), "policies need no restart: {log_text}");
    let changed = format!("{FILE}[work]\nlease = \"2m\"\n[lock]\nlease = \"10s\"\n");
    let log_text = after_hangup(&changed, "ignored changes to sections that need a restart");
    assert!(log_text.contains("[work], [lock]"), "{log_text}");
    assert_eq!(daemon.terminate(), Some(0));
}
