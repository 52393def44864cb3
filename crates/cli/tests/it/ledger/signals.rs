//! Signals to three daemons, each of which keeps its work in its own file and its locks in the common ledger.

use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_testbed::is_deep;
use serde_json::{Value, json};

use crate::ledger::cluster::Cluster;
use crate::ledger::daemon::Daemon;
use crate::ledger::place::{Loopback, Way, until};

/// The lease of a daemon. The others consider a daemon dead that does not renew for this long.
const LEASE: &str = "6s";

fn three() -> Cluster {
    let in_ledger = |_, daemon: &mut Daemon| {
        daemon.variables.extend([("HOLDOFF_LOCK_LEDGER", "default"), ("HOLDOFF_LOCK_LEASE", LEASE)]);
    };
    let cluster = Cluster::start_with(&Loopback::new(3), 3, in_ledger);
    for (number, way) in cluster.ways().iter().enumerate() {
        until("it says that it lives", || {
            let (_, locks) = ask(way, "/v1/locks?namespace=holdoff&held=true", None);
            let count = locks["items"].as_array().map_or(0, Vec::len);
            if count == 3 { Ok(()) } else { Err(format!("{number}: {locks}")) }
        });
    }
    cluster
}

fn ask(way: &Way, path: &str, body: Option<&Value>) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(send(way.listen.clone(), path.to_owned(), body.cloned()))
}

async fn send(listen: String, path: String, body: Option<Value>) -> (u16, Value) {
    let (client, url) = (reqwest::Client::new(), format!("http://{listen}{path}"));
    let request = match &body {
        Some(body) => client.post(url).json(body),
        None => client.get(url),
    };
    let Ok(answer) = request.send().await else { return (0, Value::Null) };
    let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap_or_default());
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn signal(fingerprint: &str) -> Value {
    json!({ "fingerprint": fingerprint, "task": { "operation": "page.somebody" } })
}

fn told(way: &Way, fingerprint: &str) -> Value {
    let (status, taken) = ask(way, "/v1/signals", Some(&signal(fingerprint)));
    assert!(matches!(status, 200 | 201), "{status} {taken}");
    taken
}

/// Returns the number of the daemon that has this task.
fn owner(ways: &[Way], task: &Value) -> usize {
    let path = format!("/v1/tasks/{}", task.as_str().unwrap());
    let has = |way: &&Way| ask(way, &path, None).0 == 200;
    let owners: Vec<_> = (0..).zip(ways).filter(|(_, way)| has(way)).map(|(number, _)| number).collect();
    let [owner] = owners[..] else { panic!("{task} is at {owners:?}") };
    owner
}

#[test]
fn many_signals_at_three_daemons_make_one_task_until_it_is_over() {
    // The number of signals to each daemon.
    let each = if is_deep() { 34 } else { 10 };
    let cluster = three();
    let ways = cluster.ways();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answers: Vec<(u16, Value)> = runtime.block_on(async {
        let told = |way: &Way| {
            let (listen, body) = (way.listen.clone(), signal("disk full"));
            (0..each)
                .map(|_| tokio::spawn(send(listen.clone(), "/v1/signals".to_owned(), Some(body.clone()))))
                .collect::<Vec<_>>()
        };
        let mut answers = Vec::new();
        for answer in ways.iter().flat_map(told).collect::<Vec<_>>() {
            answers.push(answer.await.unwrap());
        }
        answers
    });
    assert!(answers.iter().all(|(status, _)| matches!(status, 200 | 201)), "{answers:#?}");
    let tasks: BTreeSet<&str> = answers.iter().map(|(_, taken)| taken["task"].as_str().unwrap()).collect();
    assert_eq!(tasks.len(), 1, "{answers:#?}");
    assert_eq!(answers.iter().filter(|(status, _)| *status == 201).count(), 1, "{answers:#?}");
    let task = &answers[0].1["task"];
    let at = owner(&ways, task);
    for (number, way) in ways.iter().enumerate() {
        let taken = told(way, "disk full");
        assert_eq!((&taken["task"], &taken["created"]), (task, &json!(false)), "{taken}");
        assert_eq!(
            taken["occurrences"].as_u64().unwrap(),
            each * 3 + 1 + number as u64,
            "each is counted once"
        );
        let node = way.status()["key"].clone();
        assert_eq!(taken.get("elsewhere").is_none(), number == at, "{taken} at {node}");
    }

    // Another signal creates another task, and a namespace has its own tasks.
    assert_ne!(told(&ways[0], "disk slow")["task"], *task);
    let mut elsewhere = signal("disk full");
    elsewhere["namespace"] = json!("eu");
    assert_eq!(ask(&ways[1], "/v1/signals", Some(&elsewhere)).0, 201);

    let over = ask(&ways[at], &format!("/v1/tasks/{}/cancel", task.as_str().unwrap()), Some(&json!({})));
    assert_eq!(over.0, 200, "{over:?}");
    let other = &ways[(at + 1) % 3];
    let next = until("another is made when it is over", || {
        let taken = told(other, "disk full");
        if taken["created"] == true { Ok(taken) } else { Err(taken.to_string()) }
    });
    assert_eq!((owner(&ways, &next["task"]), &next["occurrences"]), ((at + 1) % 3, &json!(1)));
    assert_eq!(told(&ways[at], "disk full")["task"], next["task"]);
}

#[test]
fn who_starts_again_soon_keeps_its_signals_and_who_stays_away_does_not() {
    let mut cluster = three();
    let ways = cluster.ways();
    let leader = cluster.leader();
    let [at, other] = cluster.others(leader)[..] else { panic!("not three") };
    let first = told(&ways[at], "disk full");
    assert_eq!(first["created"], true);
    cluster.daemons[at].kill();
    cluster.daemons[at].start();
    // Longer than the daemon's lease, so that the restarted daemon must renew it.
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(13) {
        let taken = told(&ways[other], "disk full");
        assert_eq!(taken["task"], first["task"], "{taken}");
        std::thread::sleep(Duration::from_millis(200));
    }

    cluster.daemons[at].kill();
    assert_eq!(told(&ways[other], "disk full")["task"], first["task"], "it may come back");
    let next = until("another daemon takes it over", || {
        let taken = told(&ways[other], "disk full");
        if taken["created"] == true { Ok(taken) } else { Err(taken.to_string()) }
    });
    let counted = told(&ways[leader], "disk full");
    assert_eq!((&counted["task"], &counted["occurrences"]), (&next["task"], &json!(2)));
}

/// Another daemon leads within seconds. Until then a signal may be refused but creates no second task.
#[test]
fn a_leader_that_is_killed_makes_no_second_task_and_without_a_majority_each_daemon_makes_its_own() {
    let mut cluster = three();
    let ways = cluster.ways();
    let leader = cluster.leader();
    let [at, other] = cluster.others(leader)[..] else { panic!("not three") };
    let first = told(&ways[at], "disk full");
    cluster.daemons[leader].kill();
    let mut counted = BTreeSet::new();
    until("it is counted at both again", || {
        for number in [at, other] {
            match ask(&ways[number], "/v1/signals", Some(&signal("disk full"))) {
                (200, taken) => {
                    assert_eq!(taken["task"], first["task"], "{taken}");
                    counted.insert(number);
                }
                (status, said) => assert_eq!(status, 503, "{said}"),
            }
        }
        if counted.len() == 2 { Ok(()) } else { Err(format!("{counted:?}")) }
    });

    cluster.daemons[at].kill();
    let alone = until("who is alone makes a task of its own", || {
        match ask(&ways[other], "/v1/signals", Some(&signal("disk lost"))) {
            (201, taken) => Ok(taken),
            (status, said) => Err(format!("{status} {said}")),
        }
    });
    assert_eq!(told(&ways[other], "disk lost")["task"], alone["task"]);
}
