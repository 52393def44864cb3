//! Locks in the ledger of three daemons, each of which keeps its work in its own file.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::ledger::cluster::{Cluster, Daemon};
use crate::ledger::environment::{CommandOutput, DaemonAccess, Loopback, until};

/// The lease. A holder that does not renew for this long loses the lock. An election takes less time.
const LEASE: Duration = Duration::from_secs(8);

fn three() -> Cluster {
    let in_ledger = |_, daemon: &mut Daemon| daemon.variables.push(("HOLDOFF_LOCK_LEDGER", "default"));
    let cluster = Cluster::start_with(&Loopback::new(3), 3, in_ledger);
    for access in &cluster.accesses() {
        until("the daemon is ready", || match http_request(access, "GET", "/readyz", &Value::Null) {
            (200, _) => Ok(()),
            (status, reply) => Err(format!("{status} {reply}")),
        });
    }
    cluster
}

/// Returns the daemon's response, with status 0 if there is none.
fn http_request(access: &DaemonAccess, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let request = reqwest::Client::new()
            .request(method.parse().unwrap(), format!("http://{}{path}", access.listen));
        let request = if body.is_null() { request } else { request.json(body) };
        let Ok(answer) = request.timeout(Duration::from_secs(30)).send().await else {
            return (0, Value::Null);
        };
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap_or_default();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    })
}

fn acquire(access: &DaemonAccess, name: &str, wait: &str) -> (u16, Value) {
    let body =
        json!({ "key": "deploy", "lease": format!("{}s", LEASE.as_secs()), "wait": wait, "name": name });
    http_request(access, "POST", "/v1/locks/acquire", &body)
}

/// Acquires a lock and asserts that it is granted.
fn acquire_now(access: &DaemonAccess, name: &str, wait: &str) -> Value {
    let (status, granted) = acquire(access, name, wait);
    assert_eq!(status, 200, "{name}: {granted}");
    granted
}

fn send_proof(access: &DaemonAccess, what: &str, held: &Value) -> (u16, Value) {
    let mut proof = json!({ "key": "deploy", "token": held["token"], "lock": held["lock"] });
    if what == "renew" {
        proof["lease"] = json!(format!("{}s", LEASE.as_secs()));
    }
    http_request(access, "POST", &format!("/v1/locks/{what}"), &proof)
}

fn token(held: &Value) -> u64 {
    held["token"].as_str().unwrap().parse().unwrap()
}

/// Returns `holdoff lock` with an environment that names the daemon and the ledger of the locks.
fn lock(access: &DaemonAccess, words: &[&str]) -> Command {
    let mut command = access.command(env!("CARGO_BIN_EXE_holdoff"));
    command.arg("lock").args(words).current_dir(std::env::temp_dir());
    command.env("HOLDOFF_URL", format!("http://{}", access.listen)).env("HOLDOFF_LOCK_LEDGER", "default");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
    command
}

pub(crate) fn run_lock(access: &DaemonAccess, words: &[&str]) -> CommandOutput {
    CommandOutput::of(&lock(access, words).output().unwrap())
}

#[test]
fn a_lock_held_through_one_daemon_is_refused_by_the_others() {
    let cluster = three();
    let accesses = cluster.accesses();
    let first = acquire_now(&accesses[0], "first", "0s");
    for access in &accesses[1..] {
        let (status, refused) = acquire(access, "another", "0s");
        assert_eq!((status, &refused["type"]), (409, &json!("/problems/lock-held")), "{refused}");
        assert_eq!(
            (&refused["holder"]["name"], &refused["holder"]["token"]),
            (&json!("first"), &first["token"])
        );
        let (_, listed) = http_request(access, "GET", "/v1/locks?held=true", &Value::Null);
        assert_eq!(listed["items"][0]["holder"]["name"], "first", "{listed}");
    }
    assert_eq!(send_proof(&accesses[0], "release", &first).0, 200);
    let second = acquire_now(&accesses[1], "second", "0s");
    assert!(token(&second) > token(&first), "{second}");

    // A waiter at another daemon is notified at once of the release, and the holder may send the release to any
    // daemon.
    let third = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire_now(&accesses[2], "third", "25s"));
        until("the waiter is recorded", || {
            let (_, shown) = http_request(&accesses[0], "GET", "/v1/locks/show?key=deploy", &Value::Null);
            if shown["waiting"] == 1 { Ok(()) } else { Err(shown.to_string()) }
        });
        assert_eq!(send_proof(&accesses[0], "renew", &second).0, 200);
        assert_eq!(send_proof(&accesses[0], "release", &second).0, 200);
        waiting.join().unwrap()
    });
    assert!(token(&third) > token(&second), "{third}");
    let (status, reply) = send_proof(&accesses[1], "renew", &second);
    assert_eq!((status, &reply["type"]), (409, &json!("/problems/lock-lost")), "{reply}");
}

#[test]
fn lock_commands_use_the_ledger_of_the_daemon() {
    let cluster = three();
    let accesses = cluster.accesses();
    let run = |access: &DaemonAccess, words: &[&str]| {
        run_lock(access, &[&["run", "deploy", "--lease", "8s"], words].concat())
    };
    let ran = run(
        &accesses[0],
        &["--", "sh", "-c", "echo $HOLDOFF_FENCING_TOKEN $HOLDOFF_KEY $HOLDOFF_NAMESPACE; exit 3"],
    );
    assert_eq!((ran.code, ran.out.split_once(' ').unwrap().1), (3, "deploy default\n"), "{ran:?}");
    let before: u64 = ran.out.split(' ').next().unwrap().parse().unwrap();

    let held = acquire_now(&accesses[1], "other-client", "0s");
    assert!(token(&held) > before, "{held}");
    let refused = run(&accesses[2], &["--wait", "0s", "--", "true"]);
    assert!(refused.code == 75 && refused.err.contains("other-client"), "{refused:?}");
    let shown = run_lock(&accesses[0], &["show", "deploy", "--json"]).json;
    assert_eq!(shown["holder"]["token"], held["token"], "{shown}");
    assert!(run_lock(&accesses[0], &["show", "deploy"]).out.contains("deploy is held by other-client"));
    assert_eq!(run_lock(&accesses[0], &["show", "nothing"]).code, 1);
    let listed = run_lock(&accesses[2], &["list", "--held", "--all", "--prefix", "dep", "--json"]).json;
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["digest"]), (1, &shown["digest"]), "{listed}");
    let seized = run_lock(&accesses[2], &["release", "deploy", "--force"]);
    assert!(seized.out.contains("held by other-client"), "{seized:?}");
    let floor = "4000000000000000000";
    assert_eq!(run_lock(&accesses[0], &["raise-floor", floor, "--json"]).json, json!({ "floor": floor }));
    let next = acquire_now(&accesses[0], "next", "0s");
    assert!(token(&next) > token(&held) && token(&next) > floor.parse().unwrap(), "{next}");
    assert_eq!(send_proof(&accesses[2], "release", &next).0, 200);
    // An explicit `--store` selects that store.
    let elsewhere = run_lock(&accesses[0], &["list", "--json", "--store", "sqlite::memory:"]);
    assert_eq!(elsewhere.json, json!([]), "{elsewhere:?}");
}

/// The leader is killed while a client holds a lock through another daemon. The holder renews the lock with the
/// remaining daemons beyond its first lease, and in that time no other client is granted the lock.
#[test]
fn a_holder_keeps_its_lock_when_the_leader_is_killed() {
    let mut cluster = three();
    let leader = cluster.leader();
    let [at, other] = cluster.others(leader)[..] else { panic!("not three") };
    let accesses = cluster.accesses();
    let held = acquire_now(&accesses[at], "holder", "0s");
    let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
    let refused = std::thread::scope(|scope| {
        let rivals: Vec<_> = [other, at]
            .map(|number| {
                let (access, held, is_over) = (&accesses[number], &held, &is_over);
                scope.spawn(move || {
                    let mut refused = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        match acquire(access, "rival", "500ms") {
                            (200, granted) => panic!("granted twice: {granted}"),
                            (409, reply) if reply["holder"].is_object() => {
                                assert_eq!(reply["holder"]["token"], held["token"], "{reply}");
                                refused += 1;
                            }
                            // Without a leader, the daemon does not know the holder when the wait expires.
                            (status, reply) => assert!(matches!(status, 409 | 503), "{status} {reply}"),
                        }
                    }
                    refused
                })
            })
            .into();
        cluster.daemons[leader].kill();
        let mut renewed = Instant::now();
        while begun.elapsed() < LEASE * 2 {
            let (asked, (status, reply)) = (Instant::now(), send_proof(&accesses[at], "renew", &held));
            match status {
                200 => renewed = asked,
                _ => assert!(status == 503 && renewed.elapsed() < LEASE, "{status} {reply}"),
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        is_over.store(true, Ordering::SeqCst);
        rivals.into_iter().map(|rival| rival.join().unwrap()).collect::<Vec<u32>>()
    });
    assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
    cluster.daemons[leader].start();
    until("the restarted daemon knows the holder", || match acquire(&accesses[leader], "rival", "0s") {
        (409, reply) if reply["holder"]["token"] == held["token"] => Ok(()),
        (200, granted) => panic!("granted twice: {granted}"),
        (status, reply) => {
            // The lease must not expire in the meantime.
            assert!(matches!(send_proof(&accesses[at], "renew", &held).0, 200 | 503));
            Err(format!("{status} {reply}"))
        }
    });
    assert_eq!(send_proof(&accesses[other], "release", &held).0, 200);
    let next = acquire_now(&accesses[leader], "next", "5s");
    assert!(token(&next) > token(&held), "{next}");
    cluster.until_equal();
}
