//! A single node, and two nodes of which one fails.

use serde_json::json;

use crate::ledger::cluster::{Cluster, role};
use crate::ledger::deeds::{Deeds, history};
use crate::ledger::place::{Loopback, until};

#[test]
fn one_node_is_a_ledger_and_is_the_same_after_a_restart() {
    let mut cluster = Cluster::start(&Loopback::new(1), 1);
    let way = cluster.daemons[0].way.clone();
    let told = way.must(&["submit", "=> +balance(alice, 30), +balance(bob, 5)"]);
    assert_eq!(told["outcome"], "committed", "{told}");
    let paid = "balance(alice, ?a), ?a >= 10 => -balance(alice, ?a), +balance(alice, ?a - 10)";
    let name = ["--tx-id", "0123456789abcdef0123456789abcdef"];
    let first = way.must(&[&["submit", paid], name.as_slice()].concat());
    let again = way.must(&[&["submit", paid], name.as_slice()].concat());
    assert_eq!(first, again, "under one name it happens once");
    way.must(&["submit", "--commands", r#"[{"put": "colour", "value": "red"}]"#]);

    let poor = way.ask(&["submit", "balance(bob, ?b), ?b >= 10 => -balance(bob, ?b)"]);
    assert_eq!((poor.code, &poor.json["outcome"]), (1, &json!("failed")), "{poor:?}");
    assert_eq!(poor.json["why"], "nothing matches");
    let wrong = way.ask(&["submit", "balance(alice, ?a) => +balance(alice, ?b)"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(
        wrong.err.contains("goal:1:39: nothing gives ?b a value") && wrong.err.contains("^^"),
        "{wrong:?}"
    );

    for how in ["local", "quorum", "lease"] {
        assert_eq!(way.must(&["get", "colour", "--how", how])["value"], "red");
        let found = way.must(&["get", "--goal", "balance(alice, ?a)", "--how", how]);
        assert!(found["result"].to_string().contains("20"), "{found}");
    }
    assert_eq!(way.ask(&["get", "taste"]).code, 1);
    let before = cluster.until_equal();
    let entries = history(&way);
    assert_eq!(entries.last().unwrap()["index"], before["index"], "the history ends where the node is");
    assert!(entries.iter().any(|entry| entry["status"] == "failed" && entry["why"] == "nothing matches"));
    assert!(way.must(&["snapshot"])["through"].as_u64() <= before["index"].as_u64());

    cluster.daemons[0].terminate();
    let nobody = way.ask(&["submit", "=> +lost(1)"]);
    assert!(nobody.code == 1 && nobody.err.contains("no daemon answers at http://127.0.0.1"), "{nobody:?}");
    cluster.daemons[0].start();
    until("it leads again", || role(&way, "leads"));
    assert_eq!(cluster.until_equal()["state_hash"], before["state_hash"]);
    assert_eq!(
        way.must(&[&["submit", paid], name.as_slice()].concat()),
        first,
        "names are kept over a restart"
    );
}

#[test]
fn who_makes_a_ledger_twice_or_under_a_daemon_is_told_so() {
    let cluster = Cluster::start(&Loopback::new(1), 1);
    let daemon = &cluster.daemons[0];
    for member in [None, Some(daemon.contact())] {
        let told = daemon.make(member.as_deref());
        assert_eq!(told.code, 1, "{told:?}");
        assert!(
            told.err.contains("A daemon that runs has it") && told.err.contains("`holdoff ledger status`"),
            "{told:?}"
        );
    }
}

#[test]
fn without_its_majority_a_node_refuses_what_it_is_asked_and_says_so() {
    let mut cluster = Cluster::start(&Loopback::new(2), 2);
    let deeds = Deeds::default();
    let way = cluster.daemons[0].way.clone();
    deeds.submit(&cluster.ways());
    cluster.daemons[1].kill();
    until("it has noticed", || role(&way, "looks"));
    let wish = deeds.wish();
    let told = way.ask(&wish.words());
    assert_eq!((told.code, &told.json["outcome"]), (75, &json!("no_quorum")), "{told:?}");
    assert!(told.json["why"].as_str().unwrap().contains("majority"), "it says what to do: {told:?}");
    assert_eq!(way.ask(&["get", "colour", "--how", "quorum"]).code, 75);
    assert_eq!(way.ask(&["get", "--goal", "done(?n)", "--how", "local"]).code, 0);
    cluster.daemons[1].start();
    deeds.insist(&wish, &[way]);
    cluster.until_equal();
    deeds.check(&cluster.ways());
}
