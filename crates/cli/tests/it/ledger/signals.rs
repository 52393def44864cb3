//! Signals to three daemons, each of which keeps its work in its own file and its locks in the common ledger.

use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_testbed::is_deep;
use serde_json::{Value, json};

use crate::ledger::cluster::{Cluster, Daemon};
use crate::ledger::environment::{DaemonAccess, Loopback, until};

/// The lease of a daemon. The others consider a daemon dead that does not renew for this long.
const LEASE: &str = "6s";

fn three() -> Cluster {
    let in_ledger = |_, daemon: &mut Daemon| {
        daemon.variables.extend([("HOLDOFF_LOCK_LEDGER", "default"), ("HOLDOFF_LOCK_LEASE", LEASE)]);
    };
    let cluster = Cluster::start_with(&Loopback::new(3), 3, in_ledger);
    for (number, access) in cluster.accesses().iter().enumerate() {
        until("the daemon lists the liveness locks of all three daemons", || {
            let (_, locks) = http_request(access, "/v1/locks?namespace=holdoff&held=true", None);
            let count = locks["items"].as_array().map_or(0, Vec::len);
            if count == 3 { Ok(()) } else { Err(format!("{number}: {locks}")) }
        });
    }
    cluster
}

fn http_request(access: &DaemonAccess, path: &str, body: Option<&Value>) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(send(reqwest::Client::new(), access.listen.clone(), path.to_owned(), body.cloned()))
}

async fn send(client: reqwest::Client, listen: String, path: String, body: Option<Value>) -> (u16, Value) {
    let url = format!("http://{listen}{path}");
    let request = match &body {
        Some(body) => client.post(url).json(body),
        None => client.get(url),
    };
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) => return (0, Value::String(format!("{error:?}"))),
    };
    let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap_or_default());
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn signal(fingerprint: &str) -> Value {
    json!({ "fingerprint": fingerprint, "task": { "operation": "page.oncall" } })
}

fn send_signal(access: &DaemonAccess, fingerprint: &str) -> Value {
    let (status, taken) = http_request(access, "/v1/signals", Some(&signal(fingerprint)));
    assert!(matches!(status, 200 | 201), "{status} {taken}");
    taken
}

/// Returns the number of the daemon that has this task.
fn owner(accesses: &[DaemonAccess], task: &Value) -> usize {
    let path = format!("/v1/tasks/{}", task.as_str().unwrap());
    let has = |access: &&DaemonAccess| http_request(access, &path, None).0 == 200;
    let owners: Vec<_> =
        (0..).zip(accesses).filter(|(_, access)| has(access)).map(|(number, _)| number).collect();
    let [owner] = owners[..] else { panic!("{task} is at {owners:?}") };
    owner
}

#[test]
fn equal_signals_at_three_daemons_create_one_task_until_it_ends() {
    // The number of signals to each daemon.
    let each = if is_deep() { 34 } else { 10 };
    let cluster = three();
    let accesses = cluster.accesses();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answers: Vec<(u16, Value)> = runtime.block_on(async {
        // A client of its own for each request takes the thread so long that the daemons close connections that wait
        // for their first request.
        let client = reqwest::Client::new();
        let requests = |access: &DaemonAccess| {
            let (listen, body) = (access.listen.clone(), signal("disk full"));
            let path = "/v1/signals";
            (0..each)
                .map(|_| {
                    tokio::spawn(send(client.clone(), listen.clone(), path.to_owned(), Some(body.clone())))
                })
                .collect::<Vec<_>>()
        };
        let mut answers = Vec::new();
        for answer in accesses.iter().flat_map(requests).collect::<Vec<_>>() {
            answers.push(answer.await.unwrap());
        }
        answers
    });
    assert!(answers.iter().all(|(status, _)| matches!(status, 200 | 201)), "{answers:#?}");
    let tasks: BTreeSet<&str> = answers.iter().map(|(_, taken)| taken["task"].as_str().unwrap()).collect();
    assert_eq!(tasks.len(), 1, "{answers:#?}");
    assert_eq!(answers.iter().filter(|(status, _)| *status == 201).count(), 1, "{answers:#?}");
    let task = &answers[0].1["task"];
    let at = owner(&accesses, task);
    for (number, access) in accesses.iter().enumerate() {
        let taken = send_signal(access, "disk full");
        assert_eq!((&taken["task"], &taken["created"]), (task, &json!(false)), "{taken}");
        assert_eq!(
            taken["occurrences"].as_u64().unwrap(),
            each * 3 + 1 + number as u64,
            "each signal is counted once"
        );
        let node = access.status()["key"].clone();
        assert_eq!(taken.get("daemon").is_none(), number == at, "{taken} at {node}");
    }

    // Another signal creates another task, and a namespace has its own tasks.
    assert_ne!(send_signal(&accesses[0], "disk slow")["task"], *task);
    let mut elsewhere = signal("disk full");
    elsewhere["namespace"] = json!("eu");
    assert_eq!(http_request(&accesses[1], "/v1/signals", Some(&elsewhere)).0, 201);

    let over = http_request(
        &accesses[at],
        &format!("/v1/tasks/{}/cancel", task.as_str().unwrap()),
        Some(&json!({})),
    );
    assert_eq!(over.0, 200, "{over:?}");
    let other = &accesses[(at + 1) % 3];
    let next = until("a signal creates another task after the first has ended", || {
        let taken = send_signal(other, "disk full");
        if taken["created"] == true { Ok(taken) } else { Err(taken.to_string()) }
    });
    assert_eq!((owner(&accesses, &next["task"]), &next["occurrences"]), ((at + 1) % 3, &json!(1)));
    assert_eq!(send_signal(&accesses[at], "disk full")["task"], next["task"]);
}

#[test]
fn a_daemon_keeps_its_signals_if_it_restarts_within_its_lease() {
    let mut cluster = three();
    let accesses = cluster.accesses();
    let leader = cluster.leader();
    let [at, other] = cluster.others(leader)[..] else { panic!("not three") };
    let first = send_signal(&accesses[at], "disk full");
    assert_eq!(first["created"], true);
    cluster.daemons[at].kill();
    cluster.daemons[at].start();
    // Longer than the daemon's lease, so that the restarted daemon must renew it.
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(13) {
        let taken = send_signal(&accesses[other], "disk full");
        assert_eq!(taken["task"], first["task"], "{taken}");
        std::thread::sleep(Duration::from_millis(200));
    }

    cluster.daemons[at].kill();
    assert_eq!(
        send_signal(&accesses[other], "disk full")["task"],
        first["task"],
        "the signal stays with the task of the killed daemon, which may restart"
    );
    let next = until("another daemon creates the next task", || {
        let taken = send_signal(&accesses[other], "disk full");
        if taken["created"] == true { Ok(taken) } else { Err(taken.to_string()) }
    });
    let counted = send_signal(&accesses[leader], "disk full");
    assert_eq!((&counted["task"], &counted["occurrences"]), (&next["task"], &json!(2)));
}

/// Another daemon leads within seconds. Until then a signal may be refused but creates no second task.
#[test]
fn a_leader_change_creates_no_second_task() {
    let mut cluster = three();
    let accesses = cluster.accesses();
    let leader = cluster.leader();
    let [at, other] = cluster.others(leader)[..] else { panic!("not three") };
    let first = send_signal(&accesses[at], "disk full");
    cluster.daemons[leader].kill();
    let mut counted = BTreeSet::new();
    until("both remaining daemons count the signal again", || {
        for number in [at, other] {
            match http_request(&accesses[number], "/v1/signals", Some(&signal("disk full"))) {
                (200, taken) => {
                    assert_eq!(taken["task"], first["task"], "{taken}");
                    counted.insert(number);
                }
                (status, reply) => assert_eq!(status, 503, "{reply}"),
            }
        }
        if counted.len() == 2 { Ok(()) } else { Err(format!("{counted:?}")) }
    });

    cluster.daemons[at].kill();
    let alone = until("an isolated daemon creates its own task", || {
        match http_request(&accesses[other], "/v1/signals", Some(&signal("disk lost"))) {
            (201, taken) => Ok(taken),
            (status, reply) => Err(format!("{status} {reply}")),
        }
    });
    assert_eq!(send_signal(&accesses[other], "disk lost")["task"], alone["task"]);
}
