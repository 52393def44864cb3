//! Ledgers of one and of two nodes, and members that join, learn, vote and leave.

use serde_json::{Value, json};

use crate::ledger::cluster::{Cluster, role};
use crate::ledger::environment::{DaemonAccess, Loopback, until};
use crate::ledger::transactions::{Transactions, history};

#[test]
fn a_single_node_keeps_its_state_over_a_restart() {
    let mut cluster = Cluster::start(&Loopback::new(1), 1);
    let access = cluster.daemons[0].access.clone();
    let output = access.run(&["submit", "=> +balance(alice, 30), +balance(bob, 5)"]);
    assert_eq!(output["outcome"], "committed", "{output}");
    let paid = "balance(alice, ?a), ?a >= 10 => -balance(alice, ?a), +balance(alice, ?a - 10)";
    let name = ["--tx-id", "0123456789abcdef0123456789abcdef"];
    let first = access.run(&[&["submit", paid], name.as_slice()].concat());
    let again = access.run(&[&["submit", paid], name.as_slice()].concat());
    assert_eq!(first, again, "a transaction id is committed once");
    access.run(&["submit", "--commands", r#"[{"put": "colour", "value": "red"}]"#]);

    let poor = access.try_run(&["submit", "balance(bob, ?b), ?b >= 10 => -balance(bob, ?b)"]);
    assert_eq!((poor.code, &poor.json["outcome"]), (1, &json!("failed")), "{poor:?}");
    assert_eq!(poor.json["reason"], "no facts match the conditions");
    let wrong = access.try_run(&["submit", "balance(alice, ?a) => +balance(alice, ?b)"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("goal:1:39: ?b has no value") && wrong.err.contains("^^"), "{wrong:?}");

    for consistency in ["local", "quorum", "lease"] {
        assert_eq!(access.run(&["get", "colour", "--consistency", consistency])["value"], "red");
        let found = access.run(&["get", "--goal", "balance(alice, ?a)", "--consistency", consistency]);
        assert!(found["result"].to_string().contains("20"), "{found}");
    }
    assert_eq!(access.try_run(&["get", "taste"]).code, 1);
    let before = cluster.until_equal();
    let entries = history(&access);
    assert_eq!(entries.last().unwrap()["index"], before["index"], "the history ends where the node is");
    assert!(
        entries
            .iter()
            .any(|entry| entry["status"] == "failed" && entry["reason"] == "no facts match the conditions")
    );
    assert!(access.run(&["snapshot"])["through"].as_u64() <= before["index"].as_u64());

    cluster.daemons[0].terminate();
    let refused = access.try_run(&["submit", "=> +lost(1)"]);
    assert!(
        refused.code == 1 && refused.err.contains("cannot connect to a daemon at http://127.0.0.1"),
        "{refused:?}"
    );
    cluster.daemons[0].start();
    until("the restarted daemon leads again", || role(&access, "leader"));
    assert_eq!(cluster.until_equal()["state_hash"], before["state_hash"]);
    assert_eq!(
        access.run(&[&["submit", paid], name.as_slice()].concat()),
        first,
        "transaction ids are kept over a restart"
    );
}

#[test]
fn init_and_join_reject_a_ledger_in_use() {
    let cluster = Cluster::start(&Loopback::new(1), 1);
    let daemon = &cluster.daemons[0];
    for member in [None, Some(daemon.contact())] {
        let output = daemon.init_or_join(member.as_deref());
        assert_eq!(output.code, 1, "{output:?}");
        assert!(
            output.err.contains("a running daemon uses it") && output.err.contains("`holdoff ledger status`"),
            "{output:?}"
        );
    }
}

#[test]
fn a_node_without_a_majority_rejects_transactions() {
    let mut cluster = Cluster::start(&Loopback::new(2), 2);
    let transactions = Transactions::default();
    let access = cluster.daemons[0].access.clone();
    transactions.submit(&cluster.accesses());
    cluster.daemons[1].kill();
    until("the leader has lost its quorum", || role(&access, "candidate"));
    let transaction = transactions.new_transaction();
    let output = access.try_run(&transaction.words());
    assert_eq!((output.code, &output.json["outcome"]), (75, &json!("no_quorum")), "{output:?}");
    assert!(output.json["reason"].as_str().unwrap().contains("majority"), "{output:?}");
    assert_eq!(access.try_run(&["get", "colour", "--consistency", "quorum"]).code, 75);
    assert_eq!(access.try_run(&["get", "--goal", "done(?n)", "--consistency", "local"]).code, 0);
    cluster.daemons[1].start();
    transactions.submit_until_known(&transaction, &[access]);
    cluster.until_equal();
    transactions.check(&cluster.accesses());
}

#[test]
fn members_become_learners_and_voters_and_are_removed() {
    let cluster = Cluster::start(&Loopback::new(3), 3);
    let transactions = Transactions::default();
    let (access, accesses) = (cluster.daemons[0].access.clone(), cluster.accesses());
    let last = &cluster.daemons[2];
    access.run(&["members", "add", &last.contact(), "--name", "reader", "--learner"]);
    until_votes(&access, 2);
    transactions.submit(&accesses[2..]);
    let output = access.run(&["members"]);
    let reader = output.as_array().unwrap().iter().find(|it| it["key"] == *last.key).unwrap().clone();
    assert_eq!((&reader["name"], &reader["should_vote"]), (&"reader".into(), &false.into()));
    cluster.until_equal();
    assert_eq!(last.access.status()["role"], "learner");
    for consistency in ["quorum", "lease"] {
        last.access.run(&["get", "--goal", "done(?n)", "--consistency", consistency]);
    }

    access.run(&["members", "add", &last.contact(), "--name", "reader"]);
    until_votes(&access, 3);
    transactions.submit(&accesses);
    cluster.until_equal();
    transactions.check(&accesses);

    assert_eq!(access.try_run(&["members", "remove", "unknown"]).code, 1);
    access.run(&["members", "remove", "reader"]);
    until_votes(&access, 2);
    transactions.submit(&accesses[..2]);
    assert_eq!(access.run(&["members"]).as_array().unwrap().len(), 2);
}

#[test]
fn step_down_transfers_leadership() {
    let cluster = Cluster::start(&Loopback::new(3), 3);
    let (transactions, accesses) = (Transactions::default(), cluster.accesses());
    transactions.submit(&accesses);
    for asked in 0..3 {
        let to = &cluster.daemons[(cluster.leader() + 1) % 3];
        step_down(&accesses[asked], &["step-down", "--to", &to.name], |leader| leader == &*to.key);
        until("the chosen daemon leads", || role(&to.access, "leader"));
        transactions.submit(&accesses);
    }
    let leader = cluster.leader();
    step_down(&accesses[0], &["step-down"], |target| target != &*cluster.daemons[leader].key);
    transactions.submit(&accesses);
    assert_eq!(accesses[0].try_run(&["step-down", "--to", "unknown"]).code, 1);
    cluster.until_equal();
    transactions.check(&accesses);
}

/// Transfers the leadership. If the target does not receive the whole log in time, the leader continues to lead, and the
/// command asks to retry.
fn step_down(access: &DaemonAccess, words: &[&str], is_expected: impl Fn(&Value) -> bool) {
    until("the leadership is transferred", || {
        let output = access.try_run(words);
        if output.code != 0 && output.err.contains("retry") {
            return Err(output.err);
        }
        assert!(output.code == 0 && is_expected(&output.json["leader"]), "{output:?}");
        Ok(())
    });
}

fn until_votes(access: &DaemonAccess, count: usize) {
    until("the ledger has the expected number of voters", || {
        let status = access.status();
        let votes = status["members"].as_array().map(Vec::as_slice).unwrap_or_default();
        let votes = votes.iter().filter(|member| member["votes"] == true).count();
        if votes == count { Ok(()) } else { Err(status.to_string()) }
    });
}
