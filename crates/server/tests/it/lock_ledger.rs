//! A daemon that keeps its locks in its ledger.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::time::Duration;

use holdoff_ledger::runtime::{PeerAddress, Settings, create, join};
use holdoff_server::{Options, Server, StoreUrl};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Daemon, answer, options};

/// The options of a daemon, with its ledgers in a directory beside the work, and its locks in the ledger of this name.
fn with_locks_in(folder: &TempDir, name: &str) -> Options {
    let mut options = options(StoreUrl::in_directory(folder.path()));
    let mut settings = Settings::new(folder.path().join("ledger"));
    settings.listen.set_port(0);
    options.ledger = Some(Box::new(settings));
    options.locking = holdoff_lock::Settings::default().with_ledger(name);
    options
}

async fn start(folder: &TempDir) -> Daemon {
    let daemon = Daemon::start_with(with_locks_in(folder, "default")).await;
    until_ready(&daemon).await;
    daemon
}

/// Waits until the daemon is ready and has locks.
async fn until_ready(daemon: &Daemon) {
    let mut seen = String::new();
    let looking = async {
        loop {
            let ready = daemon.get("/readyz").await;
            let locks =
                daemon.send("/v1/locks/acquire", &json!({ "key": "a probe", "lease": "100ms" })).await;
            if ready.status() == 200 && locks.status() == 200 {
                return;
            }
            seen = format!("{} {}", ready.text().await.unwrap(), locks.text().await.unwrap());
            tokio::time::sleep(Duration::from_millis(120)).await;
        }
    };
    assert!(tokio::time::timeout(CONDITION_TIMEOUT, looking).await.is_ok(), "never ready: {seen}");
}

/// Returns the token of a granted lock. Above 2^53, JavaScript would round a number: it is a string.
fn token(granted: &Value) -> u64 {
    granted["token"].as_str().unwrap().parse().unwrap()
}

async fn acquire(daemon: &Daemon, key: &str, status: u16) -> Value {
    let body = json!({ "key": key, "lease": "30s", "name": "tester" });
    answer(daemon.send("/v1/locks/acquire", &body).await, status).await
}

#[tokio::test]
async fn a_missing_ledger_for_locks_prevents_the_start() {
    let folder = tempfile::tempdir().unwrap();
    create(&folder.path().join("ledger"), "other").unwrap();
    let refused = Server::start(with_locks_in(&folder, "mine")).await.unwrap_err().to_string();
    for expected in
        ["`mine`", "[lock]", "holdoff ledger init --namespace mine", "holdoff ledger join --namespace mine"]
    {
        assert!(refused.contains(expected), "{refused}");
    }
    let mut options = with_locks_in(&folder, "other");
    options.ledger = None;
    let refused = Server::start(options).await.unwrap_err().to_string();
    assert!(refused.contains("holdoff ledger init --namespace other"), "{refused}");
}

#[tokio::test]
async fn locks_in_a_ledger_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    create(&folder.path().join("ledger"), "default").unwrap();
    let daemon = start(&folder).await;
    assert_eq!(daemon.server.locks_ledger(), Some("default"));
    let first = acquire(&daemon, "deploy", 200).await;
    let settings = daemon.get("/settings").await.text().await.unwrap();
    assert!(settings.contains("the ledger default"), "{settings}");
    daemon.server.shutdown().await;

    let daemon = start(&folder).await;
    let refused = acquire(&daemon, "deploy", 409).await;
    assert_eq!(
        (&refused["holder"]["name"], &refused["holder"]["token"]),
        (&json!("tester"), &first["token"])
    );
    let proof = json!({ "key": "deploy", "token": first["token"], "lock": first["lock"] });
    answer(daemon.send("/v1/locks/renew", &proof).await, 200).await;
    let page = daemon.get("/locks").await.text().await.unwrap();
    assert!(page.contains("deploy") && page.contains("tester"), "{page}");
    let listed = answer(daemon.get("/v1/locks?held=true&prefix=dep").await, 200).await;
    assert_eq!(listed["items"][0]["holder"]["token"], first["token"], "{listed}");
    answer(daemon.send("/v1/locks/release", &proof).await, 200).await;
    let second = acquire(&daemon, "deploy", 200).await;
    assert!(token(&second) > token(&first), "{second}");

    let floor = json!({ "floor": "4000000000000000000" });
    assert_eq!(answer(daemon.send("/v1/locks/raise-floor", &floor).await, 200).await, floor);
    for (wrong, expected) in [(json!("9000000000000000000"), "the highest floor"), (json!(7), "floor: ")] {
        let problem =
            answer(daemon.send("/v1/locks/raise-floor", &json!({ "floor": wrong })).await, 400).await;
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{problem}");
    }
    let seized = answer(daemon.send("/v1/locks/force-release", &json!({ "key": "deploy" })).await, 200).await;
    assert_eq!(seized["released"], true);
    let third = acquire(&daemon, "deploy", 200).await;
    assert!(token(&third) > 4_000_000_000_000_000_000, "the token is above the floor: {third}");
    let audit = answer(daemon.get("/v1/audit").await, 200).await;
    assert!(audit.to_string().contains("lock.raise-floor"), "{audit}");
    daemon.server.shutdown().await;
}

/// A caller that knows a lock's nonce can release the lock. The ledger's rows contain the nonce, so the API does not
/// show them.
#[tokio::test]
async fn the_api_hides_lock_rows_and_their_nonces() {
    let folder = tempfile::tempdir().unwrap();
    create(&folder.path().join("ledger"), "default").unwrap();
    let daemon = start(&folder).await;
    let held = acquire(&daemon, "deploy", 200).await;
    let proof = held["lock"].as_str().unwrap();
    let digest = answer(daemon.get("/v1/locks/show?key=deploy").await, 200).await;
    let row = format!("holdoff/lock/{}", digest["digest"].as_str().unwrap());
    let put = json!({ "put": "mine", "value": 7 });
    answer(daemon.send("/v1/ledger/transactions", &json!({ "commands": [put] })).await, 200).await;

    let history = answer(daemon.get("/v1/ledger/history?limit=256").await, 200).await;
    let entries = history["entries"].as_array().unwrap();
    let taken = entries.iter().find(|entry| entry.to_string().contains(&row)).unwrap();
    assert_eq!((&taken["kind"], &taken["diff"]), (&json!("daemon"), &json!([format!("+ {row}")])));
    assert!(
        taken.get("tx_id").is_none(),
        "a lock's transaction has no public id with which its result could be read: {taken}"
    );
    assert!(entries.iter().any(|entry| entry["diff"] == json!(["+ mine = 7"])), "{history}");
    let page = daemon.get("/ledger").await.text().await.unwrap();
    assert!(page.contains(&row) && !page.contains(proof), "{page}");
    assert!(!history.to_string().contains(proof) && !history.to_string().contains(&proof.replace('-', "")));

    let path = format!("/v1/ledger/values/{}", row.replace('/', "%2F"));
    assert_eq!(answer(daemon.get(&path).await, 400).await["type"], "/problems/invalid-query");
    let read = json!({ "commands": [{ "get": row }] });
    answer(daemon.send("/v1/ledger/read", &read).await, 400).await;
    for command in [
        json!({ "delete": row }),
        json!({ "put": "holdoff/locks", "value": "{\"floor\":\"0\"}" }),
        json!({ "compare_and_set": row, "new": "free" }),
    ] {
        let response = daemon.send("/v1/ledger/transactions", &json!({ "commands": [command] })).await;
        let problem = answer(response, 400).await;
        assert!(problem["detail"].as_str().unwrap().contains("/v1/locks"), "{problem}");
    }
    assert_eq!(acquire(&daemon, "deploy", 409).await["holder"]["token"], held["token"]);
    daemon.server.shutdown().await;
}

#[tokio::test]
async fn a_joining_daemon_serves_work_and_gets_locks_after_admission() {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    create(&one.path().join("ledger"), "default").unwrap();
    let first = start(&one).await;
    let status = answer(first.get("/v1/ledger").await, 200).await;
    let member: PeerAddress = status["contact"].as_str().unwrap().parse().unwrap();
    join(&two.path().join("ledger"), "default", &[member]).unwrap();
    let second = Daemon::start_with(with_locks_in(&two, "default")).await;
    let contact = answer(second.get("/v1/ledger").await, 200).await["contact"].as_str().unwrap().to_owned();

    let problem = answer(second.get("/readyz").await, 503).await;
    assert_eq!(problem["type"], "/problems/not-joined");
    assert!(
        problem["detail"].as_str().unwrap().contains(&contact),
        "the problem names the contact of the node to admit: {problem}"
    );
    let body = json!({ "key": "deploy" });
    for path in ["acquire", "force-release"] {
        let refused = second.send(&format!("/v1/locks/{path}"), &body).await;
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(answer(refused, 503).await["type"], "/problems/not-joined");
    }
    assert_eq!(answer(second.get("/v1/locks").await, 503).await["type"], "/problems/not-joined");
    assert_eq!(second.get("/locks").await.status(), 503);
    second.submit(&json!({ "operation": "mail.send" })).await;
    let signal = json!({ "fingerprint": "disk full", "task": { "operation": "page.operator" } });
    let taken = answer(second.send("/v1/signals", &signal).await, 201).await;
    assert_eq!(answer(second.send("/v1/signals", &signal).await, 200).await["task"], taken["task"]);

    let held = acquire(&first, "deploy", 200).await;
    let (key, address) = contact.split_once('@').unwrap();
    let admit = json!({ "key": key, "address": address, "votes": false });
    answer(first.send("/v1/ledger/members", &admit).await, 200).await;
    until_ready(&second).await;
    assert_eq!(acquire(&second, "deploy", 409).await["holder"]["token"], held["token"]);
    second.server.shutdown().await;
    first.server.shutdown().await;
}
