//! All responses fit one order of events, whatever happens to leaders.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use fastrand::Rng;
use porcupine_rs::{CheckResult, Model, Operation};

use crate::ledger::cluster::Cluster;
use crate::ledger::environment::{
    CONDITION_TIMEOUT, CommandOutput, DaemonAccess, Loopback, Namespaces, until,
};

const CLIENTS: usize = 4;
const ROUNDS: usize = 30;
const KEYS: u8 = 2;
const SEED: u64 = 1;

/// An operation on a key, with its response.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RegisterOperation {
    /// Read this value.
    Get(u8, i64),
    /// Wrote the first value and returned the second, the previous one.
    Put(u8, i64, i64),
    /// Compared with the first value and wrote the second if it matched. The flag says whether it did.
    Swap(u8, i64, i64, bool),
}

#[derive(Clone, Debug)]
struct Keys;

impl Model for Keys {
    type State = BTreeMap<u8, i64>;
    type Op = RegisterOperation;
    type Metadata = ();

    fn init() -> Self::State {
        (0..KEYS).map(|key| (key, 0)).collect()
    }

    fn step(state: &Self::State, operation: &RegisterOperation) -> (bool, Self::State) {
        let mut next = state.clone();
        let fits = match *operation {
            RegisterOperation::Get(key, seen) => state[&key] == seen,
            RegisterOperation::Put(key, new, before) => next.insert(key, new) == Some(before),
            RegisterOperation::Swap(key, expected, new, true) => next.insert(key, new) == Some(expected),
            RegisterOperation::Swap(key, expected, _, false) => state[&key] != expected,
        };
        (fits, next)
    }
}

/// A client that sends each request to a random daemon.
struct Client<'a> {
    accesses: &'a [DaemonAccess],
    rng: Rng,
}

impl Client<'_> {
    /// Repeats a request until a response has a known outcome.
    fn run_until_known(
        &mut self,
        words: &[&str],
        is_known: impl Fn(&CommandOutput) -> bool,
    ) -> CommandOutput {
        let end = Instant::now() + CONDITION_TIMEOUT;
        loop {
            let output = self.accesses[self.rng.usize(..self.accesses.len())].try_run(words);
            if is_known(&output) {
                return output;
            }
            assert!(Instant::now() < end, "no response has a known outcome: {words:?}, {output:?}");
        }
    }

    /// Submits under one transaction id, so that a repeated request has no second effect.
    fn submit(&mut self, commands: &serde_json::Value) -> CommandOutput {
        let (commands, tx_id) = (commands.to_string(), format!("{:032x}", self.rng.u128(..)));
        let words = ["submit", "--timeout", "5s", "--tx-id", &tx_id, "--commands", &commands];
        self.run_until_known(&words, |output| {
            matches!(output.json["outcome"].as_str(), Some("committed" | "failed"))
        })
    }

    fn act(&mut self) -> RegisterOperation {
        let (key, new) = (self.rng.u8(..KEYS), self.rng.i64(1..1_000_000));
        let name = format!("key-{key}");
        match self.rng.u8(..4) {
            0 => {
                let output = self.submit(&serde_json::json!([{ "put": name, "value": new }]));
                RegisterOperation::Put(key, new, output.json["result"][0].as_i64().unwrap())
            }
            1 => {
                let RegisterOperation::Get(_, expected) = self.get(key, &name, "local") else {
                    unreachable!()
                };
                let swap = serde_json::json!({ "compare_and_set": name, "expected": expected, "new": new });
                let output = self.submit(&serde_json::json!([swap]));
                RegisterOperation::Swap(key, expected, new, output.json["outcome"] == "committed")
            }
            2 => self.get(key, &name, "lease"),
            _ => self.get(key, &name, "quorum"),
        }
    }

    fn get(&mut self, key: u8, name: &str, consistency: &str) -> RegisterOperation {
        let output = self
            .run_until_known(&["get", name, "--consistency", consistency, "--timeout", "3s"], |output| {
                output.code == 0
            });
        RegisterOperation::Get(key, output.json["value"].as_i64().unwrap())
    }
}

/// Lets all clients act concurrently under faults and checks their responses.
fn run(cluster: &mut Cluster, happen: impl FnOnce(&mut Cluster, &dyn Fn(usize))) {
    let accesses = cluster.accesses();
    for key in 0..KEYS {
        let zero = serde_json::json!([{ "put": format!("key-{key}"), "value": 0 }]);
        accesses[0].run(&["submit", "--commands", &zero.to_string()]);
    }
    cluster.until_equal();
    let (done, operations, began) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    let now = || i64::try_from(began.elapsed().as_nanos()).unwrap();
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = Client { accesses: &accesses, rng: Rng::with_seed(SEED * 100 + number as u64) };
            let (operations, done) = (&operations, &done);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let call_time = now();
                    let op = client.act();
                    let client_id = Some(u32::try_from(number).unwrap());
                    let operation =
                        Operation::<Keys> { client_id, call_time, return_time: now(), op, metadata: None };
                    operations.lock().unwrap().push(operation);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        happen(cluster, &|share| {
            until("the clients make progress", || {
                let (done, goal) = (done.load(Ordering::Relaxed), CLIENTS * ROUNDS * share / 10);
                if done >= goal { Ok(()) } else { Err(format!("{done} of {goal}")) }
            });
        });
    });
    let operations = operations.into_inner().unwrap();
    let checked = porcupine_rs::check_operations_timeout(&operations, CONDITION_TIMEOUT);
    let recorded: Vec<_> = operations.iter().map(|it| (it.call_time, it.return_time, &it.op)).collect();
    assert_eq!(checked, CheckResult::Ok, "{recorded:#?}");
    cluster.until_equal();
    eprintln!("{} operations: one order of events", operations.len());
}

#[test]
fn histories_are_linearizable_when_leaders_are_killed_and_paused() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    run(&mut cluster, |cluster, wait_for| {
        wait_for(2);
        let killed = cluster.leader();
        cluster.daemons[killed].kill();
        wait_for(4);
        cluster.daemons[killed].start();
        wait_for(6);
        let paused = cluster.leader();
        cluster.daemons[paused].pause();
        let others = cluster.others(paused);
        cluster.leader_among(&others);
        cluster.daemons[paused].resume();
    });
}

#[test]
fn histories_are_linearizable_when_the_leader_is_partitioned() {
    let environment = match Namespaces::create(3) {
        Ok(environment) => environment,
        Err(why) => {
            holdoff_testbed::skip(&format!("network namespaces cannot be made here ({why})"));
            return;
        }
    };
    let mut cluster = Cluster::start(&environment, 3);
    run(&mut cluster, |cluster, wait_for| {
        wait_for(2);
        let alone = cluster.leader();
        environment.partition(&[alone]);
        cluster.leader_among(&cluster.others(alone));
        wait_for(5);
        environment.heal();
        wait_for(7);
        let killed = cluster.leader();
        cluster.daemons[killed].kill();
        cluster.leader_among(&cluster.others(killed));
        cluster.daemons[killed].start();
    });
}
