//! The human-readable output, and the access control.

use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::ledger::cluster::Cluster;
use crate::ledger::daemon::Daemon;
use crate::ledger::place::{Loopback, Place, Told, Way, until};

fn say(way: &Way, words: &[&str]) -> Told {
    Told::of(&way.asking_for_people(words).output().unwrap())
}

#[test]
fn a_ledger_reads_well() {
    let cluster = Cluster::start(&Loopback::new(1), 1);
    let way = &cluster.daemons[0].way;
    let mut following = way.asking_for_people(&["history", "--follow", "--after", "0"]).spawn().unwrap();
    let mut seen = BufReader::new(following.stdout.take().unwrap()).lines().map_while(Result::ok);

    let told = say(way, &["submit", "=> +balance(alice, 30), +balance(bob, \"a \\\"few\\\"\")"]);
    assert_eq!((told.code, told.out.as_str()), (0, ""), "{told:?}");
    assert!(told.err.starts_with("committed at index "), "{told:?}");
    let told = say(way, &["submit", "all: balance(?who, ?a)"]);
    assert_eq!(told.out, "?who = alice, ?a = 30\n?who = bob, ?a = \"a \\\"few\\\"\"\n");
    let told = say(way, &["submit", "balance(carol, _)"]);
    assert_eq!(told.code, 1);
    assert!(told.err.starts_with("error: nothing matches; nothing is changed by it (index "), "{told:?}");
    assert_eq!(say(way, &["submit", "--commands", r#"[{"put": "a/b c", "value": "x y"}]"#]).out, "nothing\n");
    assert_eq!(say(way, &["get", "a/b c"]).out, "x y\n");
    assert_eq!(say(way, &["get", "--goal", "balance(alice, ?a)"]).out, "?a = 30\n");
    let none = say(way, &["get", "colour"]);
    assert!(none.code == 1 && none.err.contains("there is no value under \"colour\""), "{none:?}");
    let wrong = say(way, &["submit", "--commands", r#"[{"put": "a"}]"#]);
    assert!(wrong.code == 2 && wrong.err.contains("`value` is missing"), "{wrong:?}");

    assert!(seen.any(|line| line == "    + balance(alice, 30)"), "whoever follows sees it");
    assert!(seen.any(|line| line == "    failed: nothing matches"));
    let ended = Command::new("kill").args(["-INT", &following.id().to_string()]).status().unwrap();
    assert!(ended.success() && following.wait().unwrap().success());

    let shown = say(way, &["history", "--limit", "1000"]).out;
    assert!(shown.contains("  => +balance(alice, 30), +balance(bob, \"a"), "{shown}");
    assert!(shown.contains("    + a/b c = \"x y\""), "{shown}");
    let status = say(way, &["status"]).out;
    assert!(status.contains("here       leads, at index "), "{status}");
    assert!(status.contains("leader     node-0, for ") && status.contains("there      yes"), "{status}");
    assert!(say(way, &["verify"]).out.contains("follow one from the other"));
    assert!(say(way, &["snapshot"]).out.starts_with("a snapshot stands for everything up to index "));
    let alone = say(way, &["step-down"]);
    assert!(alone.code == 1 && alone.err.contains("there is nobody else who votes"), "{alone:?}");
    let other = say(way, &["status", "--namespace", "other"]);
    assert!(other.code == 1 && other.err.contains("`holdoff ledger init`"), "{other:?}");
}

#[test]
fn a_history_whose_beginning_is_gone_is_shown_from_where_it_is_kept() {
    let few = |_, daemon: &mut Daemon| daemon.variables.push(("HOLDOFF_LEDGER_KEPT", "16"));
    let cluster = Cluster::start_with(&Loopback::new(1), 1, few);
    let way = &cluster.daemons[0].way;
    let gone = until("older entries are gone", || {
        way.must(&["submit", "=> +again(1)"]);
        let told = way.ask(&["history", "--after", "0"]);
        if told.code == 0 { Err(told.json["next"].to_string()) } else { Ok(told) }
    });
    assert!(gone.code == 1 && gone.err.contains("this node keeps entries from "), "{gone:?}");
    let entries = way.must(&["history"])["entries"].clone();
    let last = entries.as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["index"], way.status()["index"]);
}

#[test]
fn a_daemon_that_asks_for_a_token_gets_the_one_in_the_variable() {
    let (place, folder) = (Loopback::new(1), tempfile::tempdir().unwrap());
    let mut daemon = Daemon::new(place.way(0), place.node(0), folder.path(), 0);
    daemon.variables.push(("HOLDOFF_TOKENS", "required"));
    daemon.begin(None);
    let way = daemon.way.clone();
    let nobody = way.ask(&["status"]);
    assert!(nobody.code == 1 && nobody.err.contains("$HOLDOFF_API_TOKEN"), "{nobody:?}");

    let token = |scope: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["token", "create", "--name", scope, "--scope", scope, "--data"]);
        let made = command.arg(folder.path().join("node-0/data")).output().unwrap();
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (reads, works) = (token("read"), token("work"));
    let ask = |token: &str, words: &[&str]| {
        let told = Told::of(&way.asking(words).env("HOLDOFF_API_TOKEN", token).output().unwrap());
        assert!(!told.err.contains(token), "the token stays untold");
        told
    };
    until("it leads", || {
        let status = ask(&reads, &["status"]);
        if status.json["role"] == "leads" { Ok(()) } else { Err(format!("{status:?}")) }
    });
    assert_eq!(ask(&reads, &["submit", "=> +a(1)"]).code, 1);
    assert_eq!(ask(&works, &["submit", "=> +a(1)"]).code, 0);
    assert_eq!(ask(&works, &["snapshot"]).code, 1);
}
