//! The human-readable output, and the access control.

use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::ledger::cluster::{Cluster, Daemon};
use crate::ledger::environment::{CommandOutput, DaemonAccess, Environment, Loopback, until};

fn run_text(access: &DaemonAccess, words: &[&str]) -> CommandOutput {
    CommandOutput::of(&access.text_command(words).output().unwrap())
}

#[test]
fn the_output_of_ledger_commands_is_readable() {
    let cluster = Cluster::start(&Loopback::new(1), 1);
    let access = &cluster.daemons[0].access;
    let mut following = access.text_command(&["history", "--follow", "--after", "0"]).spawn().unwrap();
    let mut seen = BufReader::new(following.stdout.take().unwrap()).lines().map_while(Result::ok);

    let output = run_text(access, &["submit", "=> +balance(alice, 30), +balance(bob, \"a \\\"few\\\"\")"]);
    assert_eq!((output.code, output.out.as_str()), (0, ""), "{output:?}");
    assert!(output.err.starts_with("committed at index "), "{output:?}");
    let output = run_text(access, &["submit", "all: balance(?who, ?a)"]);
    assert_eq!(output.out, "?who = alice, ?a = 30\n?who = bob, ?a = \"a \\\"few\\\"\"\n");
    let output = run_text(access, &["submit", "balance(carol, _)"]);
    assert_eq!(output.code, 1);
    assert!(
        output.err.starts_with(
            "error: the transaction failed and changed nothing: no facts match the conditions (index "
        ),
        "{output:?}"
    );
    assert_eq!(
        run_text(access, &["submit", "--commands", r#"[{"put": "a/b c", "value": "x y"}]"#]).out,
        "none\n"
    );
    assert_eq!(run_text(access, &["get", "a/b c"]).out, "x y\n");
    assert_eq!(run_text(access, &["get", "--goal", "balance(alice, ?a)"]).out, "?a = 30\n");
    let none = run_text(access, &["get", "colour"]);
    assert!(none.code == 1 && none.err.contains("key \"colour\" has no value"), "{none:?}");
    let wrong = run_text(access, &["submit", "--commands", r#"[{"put": "a"}]"#]);
    assert!(wrong.code == 2 && wrong.err.contains("`value` is missing"), "{wrong:?}");

    assert!(seen.any(|line| line == "    + balance(alice, 30)"), "`history --follow` prints the transaction");
    assert!(seen.any(|line| line == "    failed: no facts match the conditions"));
    let ended = Command::new("kill").args(["-INT", &following.id().to_string()]).status().unwrap();
    assert!(ended.success() && following.wait().unwrap().success());

    let shown = run_text(access, &["history", "--limit", "1000"]).out;
    assert!(shown.contains("  => +balance(alice, 30), +balance(bob, \"a"), "{shown}");
    assert!(shown.contains("    + a/b c = \"x y\""), "{shown}");
    let status = run_text(access, &["status"]).out;
    assert!(status.contains("role       leader at index "), "{status}");
    assert!(status.contains("leader     node-0 for ") && status.contains("reachable  yes"), "{status}");
    assert!(run_text(access, &["verify"]).out.contains("verified entries "));
    assert!(run_text(access, &["snapshot"]).out.starts_with("wrote a snapshot through index "));
    let alone = run_text(access, &["step-down"]);
    assert!(alone.code == 1 && alone.err.contains("there is no other voter"), "{alone:?}");
    let other = run_text(access, &["status", "--namespace", "other"]);
    assert!(other.code == 1 && other.err.contains("`holdoff ledger init`"), "{other:?}");
}

#[test]
fn a_compacted_history_is_listed_from_its_first_entry() {
    let few = |_, daemon: &mut Daemon| daemon.variables.push(("HOLDOFF_LEDGER_KEPT", "16"));
    let cluster = Cluster::start_with(&Loopback::new(1), 1, few);
    let access = &cluster.daemons[0].access;
    let gone = until("older entries are gone", || {
        access.run(&["submit", "=> +again(1)"]);
        let output = access.try_run(&["history", "--after", "0"]);
        if output.code == 0 { Err(output.json["next"].to_string()) } else { Ok(output) }
    });
    assert!(gone.code == 1 && gone.err.contains("this node keeps the entries from index "), "{gone:?}");
    let entries = access.run(&["history"])["entries"].clone();
    let last = entries.as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["index"], access.status()["index"]);
}

#[test]
fn the_api_token_in_the_environment_is_sent() {
    let (environment, folder) = (Loopback::new(1), tempfile::tempdir().unwrap());
    let mut daemon = Daemon::new(environment.access(0), environment.node(0), folder.path(), 0);
    daemon.variables.push(("HOLDOFF_TOKENS", "required"));
    daemon.init_and_start(None);
    let access = daemon.access.clone();
    let refused = access.try_run(&["status"]);
    assert!(refused.code == 1 && refused.err.contains("$HOLDOFF_API_TOKEN"), "{refused:?}");

    let token = |scope: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["token", "create", "--name", scope, "--scope", scope, "--data"]);
        let made = command.arg(folder.path().join("node-0/data")).output().unwrap();
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (reads, works) = (token("read"), token("work"));
    let run_with_token = |token: &str, words: &[&str]| {
        let output =
            CommandOutput::of(&access.json_command(words).env("HOLDOFF_API_TOKEN", token).output().unwrap());
        assert!(!output.err.contains(token), "the output does not contain the API token");
        output
    };
    until("the daemon leads", || {
        let status = run_with_token(&reads, &["status"]);
        if status.json["role"] == "leader" { Ok(()) } else { Err(format!("{status:?}")) }
    });
    assert_eq!(run_with_token(&reads, &["submit", "=> +a(1)"]).code, 1);
    assert_eq!(run_with_token(&works, &["submit", "=> +a(1)"]).code, 0);
    assert_eq!(run_with_token(&works, &["snapshot"]).code, 1);
}
