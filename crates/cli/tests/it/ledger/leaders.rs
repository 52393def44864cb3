//! Leaders that are killed, paused, restarted, or partitioned with a minority.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::ledger::cluster::{Cluster, Daemon};
use crate::ledger::environment::{CommandOutput, DaemonAccess, Loopback, Namespaces, until};
use crate::ledger::transactions::{Transactions, history};

#[test]
fn a_killed_leader_loses_no_transaction() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let transactions = Transactions::default();
    for _ in 0..5 {
        transactions.submit(&cluster.accesses());
    }
    let first = cluster.leader();
    cluster.daemons[first].kill();
    let left =
        cluster.others(first).into_iter().map(|it| cluster.daemons[it].access.clone()).collect::<Vec<_>>();
    let transaction = transactions.new_transaction();
    let output = left[0].try_run(&transaction.words());
    assert!(
        transactions.record(&transaction, &output).is_some(),
        "the next transaction is committed: {output:?}"
    );
    let second = cluster.leader();
    assert_ne!(first, second);
    cluster.daemons[first].start();
    transactions.submit(&[cluster.daemons[first].access.clone()]);
    cluster.until_equal();
    transactions.check(&cluster.accesses());
}

/// The leader is paused while transactions are forwarded to it, and then killed. The clients that submitted them to
/// other daemons still learn their outcome, and the log names the old and the new leader.
#[test]
fn pending_transactions_of_a_killed_leader_commit_once_and_the_log_names_both_leaders() {
    // Long enough for all transactions to be in flight before the election timeout expires.
    let patient = |_, daemon: &mut Daemon| {
        daemon
            .variables
            .extend([("HOLDOFF_LEDGER_ELECTION", "5s"), ("HOLDOFF_LEDGER_RESULT_TIMEOUT", "25s")]);
    };
    let mut cluster = Cluster::start_with(&Loopback::new(3), 3, patient);
    let names: Vec<_> = cluster.accesses().iter().map(in_log).collect();
    let transactions = Transactions::default();
    transactions.submit(&cluster.accesses());
    let first = cluster.leader();
    let others = cluster.others(first);
    cluster.daemons[first].pause();
    let pending: Vec<_> = (0..4).map(|_| transactions.new_transaction()).collect();
    let at_leader = transactions.new_transaction();
    let submit =
        |number: usize, words: &[&str]| cluster.daemons[number].access.json_command(words).spawn().unwrap();
    let waiting: Vec<_> =
        (0..).zip(&pending).map(|(at, transaction)| submit(others[at % 2], &transaction.words())).collect();
    let lost = submit(first, &at_leader.words());
    until("both followers have accepted their transactions", || {
        let pending = others.iter().map(|it| cluster.daemons[*it].access.status()["pending"].as_u64());
        let pending: Vec<_> = pending.collect();
        if pending == [Some(2); 2] { Ok(()) } else { Err(format!("{pending:?}")) }
    });
    let before = cluster.daemons[others[0]].access.status()["leader"]["key"].clone();
    assert_eq!(
        before, *cluster.daemons[first].key,
        "the followers forwarded the transactions to the paused leader"
    );
    cluster.daemons[first].kill();

    let output = CommandOutput::of(&lost.wait_with_output().unwrap());
    assert_eq!(output.code, 124, "the outcome is unknown: {output:?}");
    assert_eq!(
        (&output.json["outcome"], &output.json["tx_id"]),
        (&"unknown".into(), &Value::from(&*at_leader.tx_id))
    );
    for (transaction, waiting) in pending.iter().zip(waiting) {
        let output = CommandOutput::of(&waiting.wait_with_output().unwrap());
        assert!(transactions.record(transaction, &output).is_some(), "{output:?}");
    }
    let left: Vec<_> = others.iter().map(|it| cluster.daemons[*it].access.clone()).collect();
    for transaction in pending.iter().chain([&at_leader]) {
        transactions.submit_until_known(transaction, &left);
    }

    let second = cluster.leader();
    let (from, to) = (&names[first], &names[second]);
    let logged: Vec<_> = others
        .iter()
        .flat_map(|it| cluster.daemons[*it].logged("rerouted a transaction to another leader"))
        .collect();
    for transaction in &pending {
        let names_both =
            |line: &&Value| line["tx_id"] == *transaction.tx_id && line["from"] == *from && line["to"] == *to;
        assert!(
            logged.iter().any(|line| names_both(&line)),
            "{transaction:?}, from {from} to {to}: {logged:#?}"
        );
    }
    cluster.daemons[first].start();
    cluster.until_equal();
    transactions.check(&cluster.accesses());
}

/// A leader that was paused for longer than its lease does not know of later commits. It must learn of them before it
/// answers.
#[test]
fn a_resumed_leader_neither_commits_nor_serves_stale_reads() {
    let cluster = Cluster::start(&Loopback::new(3), 3);
    let transactions = Transactions::default();
    let put = |value: &str| format!(r#"[{{"put": "colour", "value": "{value}"}}]"#);
    cluster.daemons[0].access.run(&["submit", "--commands", &put("red")]);
    let first = cluster.leader();
    let paused = &cluster.daemons[first];
    assert_eq!(paused.access.run(&["get", "colour", "--consistency", "lease"])["value"], "red");
    paused.pause();
    let others = cluster.others(first);
    let second = cluster.leader_among(&others);
    cluster.daemons[second].access.run(&["submit", "--commands", &put("green")]);
    transactions.submit(&[cluster.daemons[second].access.clone()]);

    // These reads start after the acknowledgement of green. They wait in the socket queue until the daemon continues.
    let reads: Vec<_> = (["lease", "quorum"].into_iter().cycle().take(4))
        .map(|how| paused.access.json_command(&["get", "colour", "--consistency", how]).spawn().unwrap())
        .collect();
    let transaction = transactions.new_transaction();
    let write = paused.access.json_command(&transaction.words()).spawn().unwrap();
    until("all requests wait at the paused daemon", || {
        let waiting = unread_connections(&paused.access);
        if waiting >= 5 { Ok(()) } else { Err(format!("{waiting}")) }
    });
    paused.resume();
    for read in reads {
        let output = CommandOutput::of(&read.wait_with_output().unwrap());
        assert!(
            output.code != 0 || output.json["value"] == "green",
            "a read does not return a stale value: {output:?}"
        );
    }
    transactions.record(&transaction, &CommandOutput::of(&write.wait_with_output().unwrap()));
    transactions.submit_until_known(&transaction, &cluster.accesses());
    assert_eq!(paused.access.run(&["get", "colour", "--consistency", "lease"])["value"], "green");
    cluster.until_equal();
    transactions.check(&cluster.accesses());
}

/// Returns the node's name in the log, the first digits of its id.
fn in_log(access: &DaemonAccess) -> String {
    access.status()["node"].as_str().unwrap()[..8].to_owned()
}

/// Returns the number of connections that a paused daemon has not read from, with data pending.
fn unread_connections(access: &DaemonAccess) -> usize {
    let (_, port) = access.listen.rsplit_once(':').unwrap();
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let waits = |line: &&str| {
        let parts: Vec<_> = line.split_whitespace().collect();
        let is_here = parts[1].ends_with(&port) && parts[3] == "01";
        is_here && !parts[4].ends_with(":00000000")
    };
    table.lines().skip(1).filter(waits).count()
}

#[test]
fn a_leader_in_a_minority_commits_nothing() {
    let environment = match Namespaces::create(5) {
        Ok(environment) => environment,
        Err(why) => {
            holdoff_testbed::skip(&format!("network namespaces cannot be made here ({why})"));
            return;
        }
    };
    let cluster = Cluster::start(&environment, 5);
    let transactions = Transactions::default();
    for _ in 0..3 {
        transactions.submit(&cluster.accesses());
    }
    let first = cluster.leader();
    let few = [first, cluster.others(first)[0]];
    let many: Vec<_> = (0..5).filter(|number| !few.contains(number)).collect();
    let accesses =
        |numbers: &[usize]| numbers.iter().map(|it| cluster.daemons[*it].access.clone()).collect::<Vec<_>>();
    environment.partition(&few);

    // Submits at once, while the partitioned node still considers itself the leader.
    let early: Vec<_> = (0..4).map(|_| transactions.new_transaction()).collect();
    let asking: Vec<_> = (0..)
        .zip(&early)
        .map(|(at, transaction)| {
            cluster.daemons[few[at % 2]].access.json_command(&transaction.words()).spawn().unwrap()
        })
        .collect();
    let second = cluster.leader_among(&many);
    for _ in 0..5 {
        transactions.submit(&accesses(&many));
    }
    for (transaction, asking) in early.iter().zip(asking) {
        let output = CommandOutput::of(&asking.wait_with_output().unwrap());
        assert!(matches!(output.code, 75 | 124), "two of five have committed something: {output:?}");
        transactions.record(transaction, &output);
    }
    until("the old leader has stepped down", || {
        let status = cluster.daemons[first].access.status();
        if status["role"] == "leader" { Err(status.to_string()) } else { Ok(()) }
    });
    for number in few {
        let output = cluster.daemons[number].access.try_run(&[
            "get",
            "--goal",
            "done(?n)",
            "--consistency",
            "lease",
            "--timeout",
            "1s",
        ]);
        assert_eq!(output.code, 75, "{output:?}");
    }
    let committed: Vec<Value> = history(&cluster.daemons[few[0]].access);
    for transaction in &early {
        assert!(!committed.iter().any(|entry| entry["tx_id"] == *transaction.tx_id), "{committed:#?}");
    }

    environment.heal();
    assert_ne!(first, second);
    for transaction in &early {
        transactions.submit_until_known(transaction, &accesses(&few));
    }
    cluster.until_equal();
    transactions.check(&cluster.accesses());
}

const WORKERS: usize = 3;

#[test]
fn a_rolling_restart_does_not_interrupt_transactions() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let (transactions, enough) = (Transactions::default(), AtomicBool::new(false));
    let accesses = cluster.accesses();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| transactions.submit_until(&accesses, &enough));
        }
        // Stops the workers also if an assertion fails.
        let _ending = Ending(&enough);
        let more = |many: usize| {
            let goal = transactions.count() + many;
            until("the workers commit more transactions", || {
                let count = transactions.count();
                if count >= goal { Ok(()) } else { Err(format!("{count} of {goal}")) }
            });
        };
        more(10);
        for number in 0..3 {
            cluster.daemons[number].terminate();
            more(10);
            cluster.daemons[number].start();
            cluster.until_all_vote();
            more(10);
        }
    });
    cluster.until_equal();
    transactions.check(&cluster.accesses());
    eprintln!("{} transactions while three daemons were started anew", transactions.count());
}

/// Sets the flag that ends the work when it is dropped, also on panic.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
