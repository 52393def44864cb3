//! Ledgers whose majority is lost for good, and the operator's recovery of a survivor.

use crate::ledger::cluster::{Cluster, Daemon, role};
use crate::ledger::environment::{CommandOutput, Loopback, until};
use crate::ledger::transactions::Transactions;

const COMMENT: &str = "the first data centre burned down";

/// Recovers a stopped daemon without these voters, from the index that it shows.
fn recover(cluster: &Cluster, survivor: usize, lost: &[&str]) -> (u64, CommandOutput) {
    let daemon = &cluster.daemons[survivor];
    let shown = daemon.offline(&["recover", "--data", "data"]);
    let last = shown.json["last"].as_u64().unwrap_or_else(|| panic!("{shown:?}"));
    let last_text = last.to_string();
    let mut words = vec!["recover", "--data", "data", "--through", &last_text, "--comment", COMMENT];
    words.extend(lost.iter().flat_map(|name| ["--lost", name]));
    (last, daemon.offline(&words))
}

#[test]
fn a_survivor_founds_a_new_configuration_and_the_history_says_so() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let transactions = Transactions::default();
    for _ in 0..5 {
        transactions.submit(&cluster.accesses());
    }
    cluster.until_equal();
    for lost in [0, 1] {
        cluster.daemons[lost].kill();
        std::fs::remove_file(cluster.daemons[lost].ledger().join("default.redb")).unwrap();
    }
    let refused = cluster.daemons[2].offline(&["recover", "--data", "data"]);
    assert!(refused.code == 1 && refused.err.contains("stop it"), "the daemon runs: {refused:?}");
    cluster.daemons[2].terminate();

    let (last, refused) = recover(&cluster, 2, &["node-0"]);
    assert!(refused.code == 1 && refused.err.contains("2 of 3 voters are left"), "{refused:?}");
    let too_late = (last + 1).to_string();
    let words = [
        "recover",
        "--data",
        "data",
        "--lost",
        "node-0",
        "--lost",
        "node-1",
        "--through",
        &too_late,
        "--comment",
        COMMENT,
    ];
    let refused = cluster.daemons[2].offline(&words);
    assert!(refused.code == 1 && refused.err.contains(&format!("ends at index {last}")), "{refused:?}");
    let (_, recovered) = recover(&cluster, 2, &["node-0", "node-1"]);
    assert_eq!(recovered.code, 0, "{recovered:?}");

    cluster.daemons[2].start();
    let survivor = cluster.daemons[2].access.clone();
    until("the survivor leads", || role(&survivor, "leader"));
    transactions.submit(std::slice::from_ref(&survivor));
    transactions.check(std::slice::from_ref(&survivor));
    let history = survivor.try_run(&["history", "--limit", "100"]).out;
    let keys = [0, 1].map(|lost| cluster.daemons[lost].key.clone());
    let names_all = |line: &&str| keys.iter().all(|key| line.contains(key)) && line.contains(COMMENT);
    assert!(history.lines().any(|line| names_all(&line)), "{history}");

    // The machines are replaced. The new nodes learn the voters from the survivor, and vote.
    let member = cluster.daemons[2].contact();
    for lost in [0, 1] {
        let made = cluster.daemons[lost].init_or_join(Some(&member));
        assert_eq!(made.code, 0, "{made:?}");
        cluster.daemons[lost].start();
        survivor.run(&["members", "add", &cluster.daemons[lost].contact()]);
    }
    cluster.until_all_vote();
    transactions.submit(&cluster.accesses());
    cluster.until_equal();
    transactions.check(&cluster.accesses());
}

/// The lost voters return with their disks, on which they have committed more than the survivor knew.
#[test]
fn voters_that_were_given_up_stop_when_they_return() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let transactions = Transactions::default();
    transactions.submit(&cluster.accesses());
    cluster.until_equal();
    cluster.daemons[2].terminate();
    let lost = cluster.accesses()[..2].to_vec();
    until("the lost voters commit without the survivor", || {
        let output = lost[0].try_run(&["submit", "=> +unknown(1)"]);
        if output.code == 0 { Ok(()) } else { Err(format!("{output:?}")) }
    });
    cluster.daemons[..2].iter_mut().for_each(Daemon::kill);
    let (_, recovered) = recover(&cluster, 2, &["node-0", "node-1"]);
    assert_eq!(recovered.code, 0, "{recovered:?}");

    // Without the survivor, one of them is no majority of its own voters.
    cluster.daemons[0].start();
    let refused = lost[0].try_run(&["submit", "=> +split(1)", "--timeout", "2s"]);
    assert!([75, 124].contains(&refused.code), "{refused:?}");
    cluster.daemons[2].start();
    let survivor = cluster.daemons[2].access.clone();
    cluster.daemons[1].start();
    for old in &lost {
        until("the returned voter has stopped", || {
            let output = old.try_run(&["status"]);
            if output.code == 0 { Err(output.out) } else { Ok(()) }
        });
    }
    until("the survivor leads", || role(&survivor, "leader"));
    assert!(
        cluster.daemons[0].log().contains("has recovered the ledger at index"),
        "{}",
        cluster.daemons[0].log()
    );
    transactions.submit(std::slice::from_ref(&survivor));

    let member = cluster.daemons[2].contact();
    for old in &mut cluster.daemons[..2] {
        old.kill();
        old.join_again(&member);
        survivor.run(&["members", "add", &old.contact()]);
    }
    cluster.until_all_vote();
    transactions.submit(&cluster.accesses());
    // The survivor has seen the history that was given up.
    cluster.until_same_history();
    transactions.check(&cluster.accesses());
}
