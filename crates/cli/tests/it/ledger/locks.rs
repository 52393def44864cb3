//! Locks in the ledger of three daemons, each of which keeps its work in its own file.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::ledger::cluster::Cluster;
use crate::ledger::daemon::Daemon;
use crate::ledger::place::{Loopback, Told, Way, until};

/// The lease. A holder that does not renew for this long loses the lock. An election takes less time.
const LEASE: Duration = Duration::from_secs(8);

fn three() -> Cluster {
    let in_ledger = |_, daemon: &mut Daemon| daemon.variables.push(("HOLDOFF_LOCK_LEDGER", "default"));
    let cluster = Cluster::start_with(&Loopback::new(3), 3, in_ledger);
    for way in &cluster.ways() {
        until("it is ready", || match ask(way, "GET", "/readyz", &Value::Null) {
            (200, _) => Ok(()),
            (status, said) => Err(format!("{status} {said}")),
        });
    }
    cluster
}

/// Returns the daemon's response, with status 0 if there is none.
fn ask(way: &Way, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let request =
            reqwest::Client::new().request(method.parse().unwrap(), format!("http://{}{path}", way.listen));
        let request = if body.is_null() { request } else { request.json(body) };
        let Ok(answer) = request.timeout(Duration::from_secs(30)).send().await else {
            return (0, Value::Null);
        };
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap_or_default();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    })
}

fn acquire(way: &Way, name: &str, wait: &str) -> (u16, Value) {
    let body =
        json!({ "key": "deploy", "lease": format!("{}s", LEASE.as_secs()), "wait": wait, "name": name });
    ask(way, "POST", "/v1/locks/acquire", &body)
}

/// Acquires a lock and asserts that it is granted.
fn had(way: &Way, name: &str, wait: &str) -> Value {
    let (status, granted) = acquire(way, name, wait);
    assert_eq!(status, 200, "{name}: {granted}");
    granted
}

fn prove(way: &Way, what: &str, held: &Value) -> (u16, Value) {
    let mut proof = json!({ "key": "deploy", "token": held["token"], "lock": held["lock"] });
    if what == "renew" {
        proof["lease"] = json!(format!("{}s", LEASE.as_secs()));
    }
    ask(way, "POST", &format!("/v1/locks/{what}"), &proof)
}

fn token(held: &Value) -> u64 {
    held["token"].as_u64().unwrap()
}

/// Returns `holdoff lock` with an environment that names the daemon and the ledger of the locks.
fn lock(way: &Way, words: &[&str]) -> Command {
    let mut command = way.command(env!("CARGO_BIN_EXE_holdoff"));
    command.arg("lock").args(words).current_dir(std::env::temp_dir());
    command.env("HOLDOFF_URL", format!("http://{}", way.listen)).env("HOLDOFF_LOCK_LEDGER", "default");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
    command
}

fn told(way: &Way, words: &[&str]) -> Told {
    Told::of(&lock(way, words).output().unwrap())
}

#[test]
fn a_lock_that_is_held_at_one_daemon_is_refused_at_the_others_and_goes_on_with_a_larger_token() {
    let cluster = three();
    let ways = cluster.ways();
    let first = had(&ways[0], "first", "0s");
    for way in &ways[1..] {
        let (status, refused) = acquire(way, "another", "0s");
        assert_eq!((status, &refused["type"]), (409, &json!("/problems/lock-held")), "{refused}");
        assert_eq!(
            (&refused["holder"]["name"], &refused["holder"]["token"]),
            (&json!("first"), &first["token"])
        );
        let (_, listed) = ask(way, "GET", "/v1/locks?held=true", &Value::Null);
        assert_eq!(listed["items"][0]["holder"]["name"], "first", "{listed}");
    }
    assert_eq!(prove(&ways[0], "release", &first).0, 200);
    let second = had(&ways[1], "second", "0s");
    assert!(token(&second) > token(&first), "{second}");

    // A waiter at another daemon is notified at once of the release, and the holder may send the release to any
    // daemon.
    let third = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| had(&ways[2], "third", "25s"));
        until("it is seen to wait", || {
            let (_, shown) = ask(&ways[0], "GET", "/v1/locks/show?key=deploy", &Value::Null);
            if shown["waiting"] == 1 { Ok(()) } else { Err(shown.to_string()) }
        });
        assert_eq!(prove(&ways[0], "renew", &second).0, 200);
        assert_eq!(prove(&ways[0], "release", &second).0, 200);
        waiting.join().unwrap()
    });
    assert!(token(&third) > token(&second), "{third}");
    let (status, said) = prove(&ways[1], "renew", &second);
    assert_eq!((status, &said["type"]), (409, &json!("/problems/lock-lost")), "{said}");
}

#[test]
fn who_uses_locks_on_the_command_line_asks_the_daemon_whose_ledger_has_them() {
    let cluster = three();
    let ways = cluster.ways();
    let run = |way: &Way, words: &[&str]| told(way, &[&["run", "deploy", "--lease", "8s"], words].concat());
    let ran =
        run(&ways[0], &["--", "sh", "-c", "echo $HOLDOFF_TOKEN $HOLDOFF_KEY $HOLDOFF_NAMESPACE; exit 3"]);
    assert_eq!((ran.code, ran.out.split_once(' ').unwrap().1), (3, "deploy default\n"), "{ran:?}");
    let before: u64 = ran.out.split(' ').next().unwrap().parse().unwrap();

    let held = had(&ways[1], "somebody", "0s");
    assert!(token(&held) > before, "{held}");
    let refused = run(&ways[2], &["--wait", "0s", "--", "true"]);
    assert!(refused.code == 75 && refused.err.contains("somebody"), "{refused:?}");
    let shown = told(&ways[0], &["show", "deploy", "--json"]).json;
    assert_eq!(shown["holder"]["token"], held["token"], "{shown}");
    assert!(told(&ways[0], &["show", "deploy"]).out.contains("deploy is held by somebody"));
    assert_eq!(told(&ways[0], &["show", "nothing"]).code, 1);
    let listed = told(&ways[2], &["list", "--held", "--all", "--prefix", "dep", "--json"]).json;
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["digest"]), (1, &shown["digest"]), "{listed}");
    let seized = told(&ways[2], &["release", "deploy", "--force"]);
    assert!(seized.out.contains("it was taken from somebody"), "{seized:?}");
    assert_eq!(told(&ways[0], &["raise-era", "--json"]).json, json!({ "era": 1 }));
    let next = had(&ways[0], "next", "0s");
    assert!(token(&next) > token(&held) && token(&next) > 1 << 32, "{next}");
    assert_eq!(prove(&ways[2], "release", &next).0, 200);
    // An explicit `--store` selects that store.
    let elsewhere = told(&ways[0], &["list", "--json", "--store", "sqlite::memory:"]);
    assert_eq!(elsewhere.json, json!([]), "{elsewhere:?}");
}

/// The leader is killed while a client holds a lock through another daemon. The holder renews the lock with the
/// remaining daemons beyond its first lease, and in that time no other client is granted the lock.
#[test]
fn who_holds_a_lock_keeps_it_when_the_leader_is_killed_and_nobody_else_gets_it() {
    let mut cluster = three();
    let leader = cluster.leader();
    let [at, other] = cluster.others(leader)[..] else { panic!("not three") };
    let ways = cluster.ways();
    let held = had(&ways[at], "holder", "0s");
    let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
    let refused = std::thread::scope(|scope| {
        let rivals: Vec<_> = [other, at]
            .map(|number| {
                let (way, held, is_over) = (&ways[number], &held, &is_over);
                scope.spawn(move || {
                    let mut refused = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        match acquire(way, "rival", "500ms") {
                            (200, granted) => panic!("granted twice: {granted}"),
                            (409, said) if said["holder"].is_object() => {
                                assert_eq!(said["holder"]["token"], held["token"], "{said}");
                                refused += 1;
                            }
                            // Without a leader, the daemon does not know the holder when the wait expires.
                            (status, said) => assert!(matches!(status, 409 | 503), "{status} {said}"),
                        }
                    }
                    refused
                })
            })
            .into();
        cluster.daemons[leader].kill();
        let mut renewed = Instant::now();
        while begun.elapsed() < LEASE * 2 {
            let (asked, (status, said)) = (Instant::now(), prove(&ways[at], "renew", &held));
            match status {
                200 => renewed = asked,
                _ => assert!(status == 503 && renewed.elapsed() < LEASE, "{status} {said}"),
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        is_over.store(true, Ordering::SeqCst);
        rivals.into_iter().map(|rival| rival.join().unwrap()).collect::<Vec<u32>>()
    });
    assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
    cluster.daemons[leader].start();
    until("the one that was killed knows who holds it", || match acquire(&ways[leader], "rival", "0s") {
        (409, said) if said["holder"]["token"] == held["token"] => Ok(()),
        (200, granted) => panic!("granted twice: {granted}"),
        (status, said) => {
            // The lease must not expire in the meantime.
            assert!(matches!(prove(&ways[at], "renew", &held).0, 200 | 503));
            Err(format!("{status} {said}"))
        }
    });
    assert_eq!(prove(&ways[other], "release", &held).0, 200);
    let next = had(&ways[leader], "next", "5s");
    assert!(token(&next) > token(&held), "{next}");
    cluster.until_equal();
}
