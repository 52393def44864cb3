//! API tokens with the real binary: created, used with a real daemon, revoked, and recorded in the audit log.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::process::Process;

struct Daemon {
    _process: Process,
    address: String,
}

impl Daemon {
    fn start(folder: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["serve", "--data", "data", "--log", "warn"]).args(flags);
        let mut process = Process::start(command.current_dir(folder).env_remove("RUST_LOG"));
        let [greeting] = process.greeting();
        let address = greeting.split("http://").nth(1).expect(&greeting).replace("0.0.0.0", "127.0.0.1");
        Self { _process: process, address }
    }

    /// Returns the status of a request with this API token.
    fn status(&self, token: &str) -> u16 {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(
            stream,
            "GET /v1/audit HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

fn holdoff(folder: &Path, arguments: &[&str]) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(arguments)
        .args(["--data", "data"])
        .current_dir(folder)
        .output();
    command.unwrap()
}

fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = holdoff(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_api_token_is_created_used_and_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Outside loopback the daemon refuses to start before there is an admin token.
    let refused = holdoff(folder, &["serve", "--listen", "0.0.0.0:0", "--require-token", "--insecure"]);
    let error_text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error_text.contains("holdoff token create"), "{error_text}");

    let ops = text(folder, &["token", "create", "--name", "ops", "--scope", "admin"]);
    let made =
        text(folder, &["token", "create", "--name", "ci", "--scope", "read", "--expires", "90d", "--json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let (ops, ci) = (ops.trim(), made["token"].as_str().unwrap());
    assert!(
        ops.starts_with("holdoff_") && !ops.contains(char::is_whitespace),
        "the command prints only the token"
    );

    let daemon = Daemon::start(folder, &["--listen", "0.0.0.0:0", "--require-token", "--insecure"]);
    assert_eq!((daemon.status(ops), daemon.status(ci), daemon.status("holdoff_x")), (200, 403, 401));
    let listed = text(folder, &["token", "list"]);
    assert!(listed.contains("ops") && listed.contains("ci"), "{listed}");
    let secret = |token: &str| token.rsplit('_').next().unwrap().to_owned();
    assert!(!listed.contains(&secret(ops)) && !listed.contains(&secret(ci)));

    let id = ops.split('_').nth(1).unwrap();
    text(folder, &["token", "revoke", id]);
    let again = holdoff(folder, &["token", "revoke", id]);
    assert_eq!(again.status.code(), Some(1), "the token is already revoked");
    let mut looks = 0;
    while daemon.status(ops) != 401 {
        looks += 1;
        assert!(looks < 1000, "the daemon still accepts the token");
        std::thread::sleep(Duration::from_millis(20));
    }

    let audit: Value = serde_json::from_str(&text(folder, &["audit", "list", "--json"])).unwrap();
    let actions: Vec<_> =
        audit.as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["token.revoke", "token.create", "token.create"]);
    assert!(!audit.to_string().contains(&secret(ops)));
}

/// The actions of the other commands are recorded in the audit log too.
#[test]
fn commands_are_recorded_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let id = text(folder, &["work", "submit", "mail.send", "--delay", "1h"]);
    text(folder, &["work", "cancel", id.trim()]);
    text(folder, &["work", "submit", "mail.send", "--delay", "1h"]);
    text(folder, &["work", "cancel", "--operation", "mail.*", "--yes"]);
    text(folder, &["work", "pause", "--queue", "slow"]);
    text(folder, &["lock", "release", "deploy", "--force"]);
    let audit: Value = serde_json::from_str(&text(folder, &["audit", "list", "--json"])).unwrap();
    let actions: Vec<_> = audit
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let part = |key: &str| entry[key].as_str().unwrap();
            (part("actor"), part("action"), part("object"), entry["count"].as_i64().unwrap())
        })
        .collect();
    let actor = "command line";
    assert_eq!(
        actions,
        [
            (actor, "lock.force-release", "deploy", 0),
            (actor, "work.pause", "queue slow", 1),
            (actor, "work.cancel", "--operation mail.*", 1),
            (actor, "work.cancel", id.trim(), 1),
        ]
    );
}
