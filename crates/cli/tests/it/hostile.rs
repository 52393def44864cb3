//! The commands with a hostile store, daemon and folder: what they print on a terminal, and where they send the API token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use holdoff_policy::is_unprintable;
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};

/// Writes the clipboard, clears the screen, hides and reverses text, and begins a line.
const HOSTILE: &str = "x\u{1b}]52;c;aGk=\u{7}\u{1b}[2J\u{9b}8m\u{1b}[8m\u{202e}y\r\nforged";

fn holdoff(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    for variable in ["HOLDOFF_URL", "HOLDOFF_API_TOKEN", "HOLDOFF_STORE", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a command on a terminal and returns everything that the terminal receives.
fn on_a_terminal(folder: &Path, arguments: &[&str]) -> String {
    let quoted = arguments.iter().map(|argument| format!("'{argument}'")).collect::<Vec<_>>().join(" ");
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("{} {quoted}", env!("CARGO_BIN_EXE_holdoff")), "/dev/null"])
        .current_dir(folder);
    command.env_remove("NO_COLOR").env_remove("HOLDOFF_API_TOKEN").env("TERM", "xterm-256color");
    // At the end of its input `script` sends characters of its own.
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("`script` runs");
    let mut shown = Vec::new();
    process.stdout.take().unwrap().read_to_end(&mut shown).unwrap();
    process.wait().unwrap();
    String::from_utf8(shown).unwrap()
}

/// Checks that a terminal shows the hostile text as text, and on one line.
fn check(folder: &Path, arguments: &[&str]) {
    let shown = on_a_terminal(folder, arguments);
    assert!(shown.contains("x\\u001b]52;c;aGk=\\u0007"), "{arguments:?} shows no foreign text: {shown:?}");
    let styles =
        ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[33m", "\u{1b}[36m", "\r\n", "\t"];
    let plain = styles.iter().fold(shown.clone(), |plain, style| plain.replace(style, ""));
    assert!(!plain.contains(is_unprintable), "{arguments:?}: {plain:?}");
    // `get` prints the lines of a value as they are.
    let forged = shown.contains("\r\nforged") && !arguments.contains(&"get");
    assert!(!forged, "{arguments:?} has a forged line: {shown:?}");
}

#[tokio::test]
async fn text_from_a_store_does_not_act_on_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |arguments: &[&str]| {
        let output = holdoff(folder, arguments).args(["--data", "data"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    std::fs::write(folder.join("holdoff.toml"), "[policies.mine]\nextends = \"standard\"").unwrap();
    let task = run(&["work", "submit", "mail.send", "--delay", "1h"]);
    run(&["policy", "deploy", "--yes"]);
    run(&["lock", "release", "job", "--force"]);
    run(&["token", "create", "--name", "ops", "--scope", "read"]);
    let locked = holdoff(folder, &["lock", "run", "job", "--data", "data", "--", "true"]).output().unwrap();
    assert!(locked.status.success(), "{}", text(&locked));
    // The commands refuse such names, so another program has written them into the store.
    let url = format!("sqlite:{}", folder.join("data/holdoff.db").display());
    let mut store = SqliteConnection::connect(&url).await.unwrap();
    for change in [
        "update holdoff_locks set owner = ?1, namespace = 'default', nonce = randomblob(16), until = 1 << 60",
        "update holdoff_server_audit set actor = ?1, action = ?1, object = ?1, namespace = ?1, request = ?1",
        "update holdoff_server_tokens set name = ?1, namespace = ?1",
        "update holdoff_lanes set queue = ?1, operation = ?1, namespace = ?1",
        "update holdoff_steps set name = ?1, message = ?1, state = 4, ended_at = due_at",
        "update holdoff_policy_sets set deployed_by = ?1",
    ] {
        let changed = sqlx::query(change).bind(HOSTILE).execute(&mut store).await.unwrap();
        assert!(changed.rows_affected() > 0, "{change}");
    }
    store.close().await.unwrap();
    for arguments in [
        &["work", "list"][..],
        &["work", "show", &task],
        &["work", "stats"],
        &["policy", "versions"],
        &["token", "list"],
        &["audit", "list"],
        &["lock", "list"],
        &["lock", "show", "job"],
        &["lock", "release", "job", "--force"],
    ] {
        let json = [arguments, &["--data", "data", "--json"]].concat();
        if arguments[1] != "release" {
            check(folder, &json);
            let shown = holdoff(folder, &json).output().unwrap().stdout;
            let shown: Value = serde_json::from_slice(&shown).unwrap();
            assert!(
                shown.to_string().contains(&json!(HOSTILE).to_string()),
                "{arguments:?}: JSON is exact: {shown}"
            );
        }
        check(folder, &[arguments, &["--data", "data"]].concat());
    }
}

/// Answers every request with hostile text. Returns the address.
fn hostile_daemon() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut first, mut length) = (String::new(), 0);
            stream.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                let line = line.to_ascii_lowercase();
                if let Some(number) = line.strip_prefix("content-length:") {
                    length = number.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            stream.read_exact(&mut vec![0; length]).unwrap();
            let path = first.split([' ', '?']).nth(1).unwrap();
            let (status, body) = hostile_answer(path);
            let stream = stream.get_mut();
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    address
}

fn hostile_answer(path: &str) -> (u16, String) {
    let x = HOSTILE;
    let holder = json!({ "name": x, "token": "5", "held_for": 1.0, "expires_in": 1.0 });
    let lock = json!({ "namespace": x, "key": x, "token": "5", "holder": holder, "waiting": 1 });
    let body = match path {
        "/v1/locks" => json!({ "items": [lock], "next": null }),
        "/v1/locks/show" => lock,
        "/v1/locks/force-release" => json!({ "holder": holder }),
        "/v1/ledger" => json!({
            "namespace": x, "contact": x, "role": x, "ledger": x, "leader_for_ms": 1, "index": 1, "hash": x, "state_hash": x,
            "certified": 1, "pending": 0, "term": { "start": 1, "attempt": 1 }, "leader": { "key": x, "name": x },
            "members": [{ "key": x, "name": x, "address": x, "votes": true, "should_vote": true, "reachable": true }],
        }),
        "/v1/ledger/history" => json!({ "entries": [
            { "index": 1, "kind": x, "reason": x, "tx_id": x, "diff": [x], "goal": x },
            { "index": 2, "kind": x, "commands": [x] },
        ] }),
        "/v1/ledger/read" => json!({ "index": 1, "result": [x] }),
        "/v1/ledger/transactions" => json!({
            "tx_id": x, "outcome": "committed", "index": 1, "result": { "variables": [x], "matches": [[x]] },
        }),
        _ => {
            let problem = json!({ "status": 409, "type": x, "title": x, "detail": x });
            return (409, problem.to_string());
        }
    };
    (200, body.to_string())
}

#[test]
fn text_from_a_daemon_does_not_act_on_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = hostile_daemon();
    for arguments in [
        &["ledger", "status"][..],
        &["ledger", "members"],
        &["ledger", "history"],
        &["ledger", "get", "a"],
        &["ledger", "submit", "=> +a(1)"],
        &["ledger", "step-down"],
        &["ledger", "verify"],
        &["lock", "list"],
        &["lock", "show", "a"],
        &["lock", "release", "a", "--force"],
        &["lock", "raise-floor", "7"],
        &["lock", "run", "a", "--", "true"],
    ] {
        let (group, rest) = arguments.split_at(1);
        check(folder.path(), &[group, &["--url", &daemon], rest].concat());
    }
}

/// Anyone may have written a file in the current directory, for example in a cloned repository.
#[test]
fn the_api_token_goes_only_to_a_daemon_that_the_user_names_or_to_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(
        folder.join("holdoff.toml"),
        "[server]\nlisten = \"192.0.2.1:7070\"\n[lock]\nledger = \"a\"",
    )
    .unwrap();
    let commands = [&["ledger", "status"][..], &["lock", "list"], &["lock", "run", "a", "--", "true"]];
    let run = |arguments: &[&str], url: Option<&str>| {
        let mut command = holdoff(folder, arguments);
        command.envs(url.map(|url| ("HOLDOFF_URL", url))).env("HOLDOFF_API_TOKEN", "holdoff_a_b");
        let output = command.output().unwrap();
        (output.status.code(), text(&output))
    };
    for command in commands {
        let (code, refused) = run(command, None);
        assert_eq!(code, Some(2), "{command:?}: {refused}");
        let expected = "$HOLDOFF_API_TOKEN is not sent to http://192.0.2.1:7070: the configuration names it";
        assert!(refused.contains(expected), "{command:?}: {refused}");
        let (code, refused) = run(command, Some("http://192.0.2.1:7070"));
        assert!(code == Some(2) && refused.contains("without TLS"), "{command:?}: {refused}");
        // `run` tries again for as long as it may wait.
        let urls = ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://127.0.0.1:1"];
        for url in urls.into_iter().filter(|_| command[1] != "run") {
            let (_, tried) = run(command, Some(url));
            assert!(!tried.contains("is not sent"), "{command:?} {url}: {tried}");
        }
    }
}

#[test]
fn a_configuration_file_of_another_user_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("holdoff.toml");
    std::fs::write(&file, "[policies.planted]\nextends = \"standard\"").unwrap();
    if std::os::unix::fs::chown(&file, Some(4242), None).is_err() {
        return holdoff_testbed::skip("only root can give a file to another user");
    }
    let listed = holdoff(folder.path(), &["policy", "list"]).output().unwrap();
    let shown = text(&listed);
    assert!(listed.status.success() && !shown.contains("planted"), "{shown}");
    assert!(
        shown.contains("ignored holdoff.toml in the current directory, because another user owns it"),
        "{shown}"
    );
    let named = holdoff(folder.path(), &["policy", "list", "--config", "holdoff.toml"]).output().unwrap();
    assert!(text(&named).contains("planted"), "{}", text(&named));
}
