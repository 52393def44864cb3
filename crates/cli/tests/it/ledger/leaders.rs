//! Killed and paused leaders.

use serde_json::Value;

use crate::ledger::cluster::Cluster;
use crate::ledger::daemon::Daemon;
use crate::ledger::deeds::Deeds;
use crate::ledger::place::{Loopback, Told, Way, until};

#[test]
fn a_leader_that_is_killed_takes_nothing_with_it() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let deeds = Deeds::default();
    for _ in 0..5 {
        deeds.submit(&cluster.ways());
    }
    let first = cluster.leader();
    cluster.daemons[first].kill();
    let left =
        cluster.others(first).into_iter().map(|it| cluster.daemons[it].way.clone()).collect::<Vec<_>>();
    let wish = deeds.wish();
    let told = left[0].ask(&wish.words());
    assert!(deeds.note(&wish, &told).is_some(), "the next one goes through at once: {told:?}");
    let second = cluster.leader();
    assert_ne!(first, second);
    cluster.daemons[first].start();
    deeds.submit(&[cluster.daemons[first].way.clone()]);
    cluster.until_equal();
    deeds.check(&cluster.ways());
}

/// The leader is paused while transactions are forwarded to it, and then killed. The clients that submitted them to
/// other daemons still learn their outcome, and the log names the old and the new leader.
#[test]
fn what_is_on_its_way_when_the_leader_is_killed_ends_once_and_the_log_tells_by_whom() {
    // Long enough for all transactions to be in flight before the election timeout expires.
    let patient = |_, daemon: &mut Daemon| {
        daemon
            .variables
            .extend([("HOLDOFF_LEDGER_ELECTION", "5s"), ("HOLDOFF_LEDGER_RESULT_TIMEOUT", "25s")]);
    };
    let mut cluster = Cluster::start_with(&Loopback::new(3), 3, patient);
    let names: Vec<_> = cluster.ways().iter().map(in_log).collect();
    let deeds = Deeds::default();
    deeds.submit(&cluster.ways());
    let first = cluster.leader();
    let others = cluster.others(first);
    cluster.daemons[first].pause();
    let wishes: Vec<_> = (0..4).map(|_| deeds.wish()).collect();
    let at_leader = deeds.wish();
    let submit = |number: usize, words: &[&str]| cluster.daemons[number].way.asking(words).spawn().unwrap();
    let waiting: Vec<_> =
        (0..).zip(&wishes).map(|(at, wish)| submit(others[at % 2], &wish.words())).collect();
    let lost = submit(first, &at_leader.words());
    until("both have taken them in", || {
        let pending = others.iter().map(|it| cluster.daemons[*it].way.status()["pending"].as_u64());
        let pending: Vec<_> = pending.collect();
        if pending == [Some(2); 2] { Ok(()) } else { Err(format!("{pending:?}")) }
    });
    let before = cluster.daemons[others[0]].way.status()["leader"]["key"].clone();
    assert_eq!(before, *cluster.daemons[first].key, "they were sent to the one that is paused");
    cluster.daemons[first].kill();

    let told = Told::of(&lost.wait_with_output().unwrap());
    assert_eq!(told.code, 124, "it may have happened: {told:?}");
    assert_eq!(
        (&told.json["outcome"], &told.json["tx_id"]),
        (&"unknown".into(), &Value::from(&*at_leader.tx_id))
    );
    for (wish, waiting) in wishes.iter().zip(waiting) {
        let told = Told::of(&waiting.wait_with_output().unwrap());
        assert!(deeds.note(wish, &told).is_some(), "{told:?}");
    }
    let left: Vec<_> = others.iter().map(|it| cluster.daemons[*it].way.clone()).collect();
    for wish in wishes.iter().chain([&at_leader]) {
        deeds.insist(wish, &left);
    }

    let second = cluster.leader();
    let (from, to) = (&names[first], &names[second]);
    let logged: Vec<_> = others
        .iter()
        .flat_map(|it| cluster.daemons[*it].logged("the leader changed during a transaction"))
        .collect();
    for wish in &wishes {
        let told = |line: &&Value| line["tx_id"] == *wish.tx_id && line["from"] == *from && line["to"] == *to;
        assert!(logged.iter().any(|line| told(&line)), "{wish:?}, from {from} to {to}: {logged:#?}");
    }
    cluster.daemons[first].start();
    cluster.until_equal();
    deeds.check(&cluster.ways());
}

/// A leader that was paused for longer than its lease does not know of later commits. It must learn of them before it
/// answers.
#[test]
fn a_leader_that_was_paused_neither_commits_nor_answers_as_if_nothing_had_happened() {
    let cluster = Cluster::start(&Loopback::new(3), 3);
    let deeds = Deeds::default();
    let put = |value: &str| format!(r#"[{{"put": "colour", "value": "{value}"}}]"#);
    cluster.daemons[0].way.must(&["submit", "--commands", &put("red")]);
    let first = cluster.leader();
    let paused = &cluster.daemons[first];
    assert_eq!(paused.way.must(&["get", "colour", "--how", "lease"])["value"], "red");
    paused.pause();
    let others = cluster.others(first);
    let second = cluster.leader_among(&others);
    cluster.daemons[second].way.must(&["submit", "--commands", &put("green")]);
    deeds.submit(&[cluster.daemons[second].way.clone()]);

    // These reads start after the acknowledgement of green. They wait in the socket queue until the daemon continues.
    let reads: Vec<_> = (["lease", "quorum"].into_iter().cycle().take(4))
        .map(|how| paused.way.asking(&["get", "colour", "--how", how]).spawn().unwrap())
        .collect();
    let wish = deeds.wish();
    let write = paused.way.asking(&wish.words()).spawn().unwrap();
    until("all wait at its door", || {
        let waiting = at_the_door(&paused.way);
        if waiting >= 5 { Ok(()) } else { Err(format!("{waiting}")) }
    });
    paused.go_on();
    for read in reads {
        let told = Told::of(&read.wait_with_output().unwrap());
        assert!(told.code != 0 || told.json["value"] == "green", "what is old is not told: {told:?}");
    }
    deeds.note(&wish, &Told::of(&write.wait_with_output().unwrap()));
    deeds.insist(&wish, &cluster.ways());
    assert_eq!(paused.way.must(&["get", "colour", "--how", "lease"])["value"], "green");
    cluster.until_equal();
    deeds.check(&cluster.ways());
}

/// Returns the node's name in the log, the first digits of its id.
fn in_log(way: &Way) -> String {
    way.status()["node"].as_str().unwrap()[..8].to_owned()
}

/// Returns the number of connections that a paused daemon has not read from, with data pending.
fn at_the_door(way: &Way) -> usize {
    let (_, port) = way.listen.rsplit_once(':').unwrap();
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let waits = |line: &&str| {
        let parts: Vec<_> = line.split_whitespace().collect();
        let is_here = parts[1].ends_with(&port) && parts[3] == "01";
        is_here && !parts[4].ends_with(":00000000")
    };
    table.lines().skip(1).filter(waits).count()
}
