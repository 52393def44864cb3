//! Clients that read and write registers over HTTP while faults happen. All responses fit one order of events.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use porcupine_rs::{CheckResult, Model, Operation};
use serde_json::{Value, json};

use crate::ledger::cluster::Cluster;
use crate::ledger::environment::{CONDITION_TIMEOUT, Gateway, Loopback, Reply, until};
use crate::ledger::leaders::Ending;

/// The time for which a client waits for one response, and for which a daemon waits for the outcome.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
const OUTCOME_TIMEOUT: &str = "2s";
/// The number of submissions of a transaction until a client leaves its outcome open.
const SUBMISSIONS: usize = 4;
/// The operations until the clients use new registers, so that each history is short enough to check.
const OPERATIONS_PER_GENERATION: usize = 4000;
const REGISTERS: u64 = 4;
/// The entries in one page of the history.
const PAGE: usize = 1000;
/// The problems after which this submission has had no effect and will have none.
const WITHOUT_EFFECT: [&str; 4] = ["no-quorum", "too-many-transactions", "not-joined", "transaction-expired"];

/// An operation on a register, with its response.
#[derive(Clone, PartialEq, Eq, Debug)]
enum RegisterOperation {
    Get(Option<i64>),
    /// Wrote the first value and returned the second, the previous one.
    Put(i64, Option<i64>),
    /// Compared with the first value and wrote the second if it matched. The flag says whether it did.
    Swap(Option<i64>, i64, bool),
    /// May have written the value at any time since, or may still.
    OpenPut(i64),
    OpenSwap(Option<i64>, i64),
}

#[derive(Clone, Debug)]
struct Register;

impl Model for Register {
    type State = Option<i64>;
    type Op = RegisterOperation;
    type Metadata = ();

    fn init() -> Self::State {
        None
    }

    fn step(state: &Self::State, operation: &RegisterOperation) -> (bool, Self::State) {
        match *operation {
            RegisterOperation::Get(seen) => (*state == seen, *state),
            RegisterOperation::Put(new, before) => (*state == before, Some(new)),
            RegisterOperation::Swap(expected, new, true) => (*state == expected, Some(new)),
            RegisterOperation::Swap(expected, _, false) => (*state != expected, *state),
            RegisterOperation::OpenPut(new) => (true, Some(new)),
            RegisterOperation::OpenSwap(expected, new) => {
                (true, if *state == expected { Some(new) } else { *state })
            }
        }
    }
}

/// The clients of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    pub(crate) count: usize,
    /// The number of lease reads in ten operations. Two are quorum reads, and the others write.
    pub(crate) lease_reads: u8,
    pub(crate) seed: u64,
}

/// The figures of a run.
#[derive(Clone, Default, Debug)]
pub(crate) struct Figures {
    pub(crate) operations: usize,
    /// Writes with a known outcome.
    pub(crate) acknowledged: usize,
    /// Writes whose outcome is unknown after all submissions.
    pub(crate) unknown: usize,
    /// The results for registers whose history is not linearizable, and the files with these histories.
    pub(crate) anomalies: Vec<String>,
    /// The longest time without an acknowledged write.
    pub(crate) longest_gap: Duration,
}

impl Figures {
    /// Adds the figures of another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.anomalies.extend(other.anomalies);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

/// What the clients of a run share.
struct Run {
    number: u32,
    gateways: Vec<Gateway>,
    began: Instant,
    enough: AtomicBool,
    done: AtomicUsize,
    next_value: AtomicI64,
    histories: Mutex<BTreeMap<String, Vec<Operation<Register>>>>,
    /// The indices of the acknowledged transactions, by their ids.
    acknowledged: Mutex<Vec<(String, u64)>>,
}

impl Run {
    fn now(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }
}

/// The progress of the clients.
pub(crate) struct Progress<'a>(&'a Run);

impl Progress<'_> {
    /// Waits until the clients have completed this many more operations.
    pub(crate) fn wait_for(&self, more: usize) {
        let goal = self.0.done.load(Ordering::Relaxed) + more;
        until("the clients make progress", || {
            let done = self.0.done.load(Ordering::Relaxed);
            if done >= goal { Ok(()) } else { Err(format!("{done} of {goal}")) }
        });
    }
}

/// A client that sends its requests to one daemon, and to another after a failure.
struct Client<'a> {
    run: &'a Run,
    id: usize,
    lease_reads: u8,
    at: usize,
    /// The last index in a response: the birth of its next transaction.
    birth: u64,
    /// The last value in a response, by register.
    seen: HashMap<String, Option<i64>>,
    rng: Rng,
}

impl Client<'_> {
    fn act(&mut self) {
        // Returns from time to time to a daemon that was avoided because of its failures.
        if self.rng.u8(..32) == 0 {
            self.at = self.rng.usize(..self.run.gateways.len());
        }
        let generation = self.run.done.load(Ordering::Relaxed) / OPERATIONS_PER_GENERATION;
        let key = format!("register-{}-{generation}-{}", self.run.number, self.rng.u64(..REGISTERS));
        let call_time = self.run.now();
        let Some(op) = self.operate(&key) else { return };
        let is_open = matches!(op, RegisterOperation::OpenPut(_) | RegisterOperation::OpenSwap(..));
        let return_time = if is_open { i64::MAX } else { self.run.now() };
        match op {
            RegisterOperation::Get(value) => _ = self.seen.insert(key.clone(), value),
            RegisterOperation::Put(new, _) | RegisterOperation::Swap(_, new, true) => {
                self.seen.insert(key.clone(), Some(new));
            }
            _ => _ = self.seen.remove(&key),
        }
        let client_id = u32::try_from(self.id).ok();
        let operation = Operation { client_id, call_time, return_time, op, metadata: None };
        self.run.histories.lock().unwrap().entry(key).or_default().push(operation);
        self.run.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads or writes. Returns `None` if a read has no result, or if a write has had no effect and will have none.
    fn operate(&mut self, key: &str) -> Option<RegisterOperation> {
        // The first response contains the birth of the first transaction.
        let kind = if self.birth == 0 { self.lease_reads } else { self.rng.u8(..10) };
        let Some(kind) = kind.checked_sub(self.lease_reads) else { return self.get(key, "lease") };
        if kind < 2 {
            return self.get(key, "quorum");
        }
        let new = self.run.next_value.fetch_add(1, Ordering::Relaxed);
        if kind.is_multiple_of(2) {
            let put = |json: &Value| {
                assert_eq!(json["outcome"], "committed", "{json}");
                RegisterOperation::Put(new, json["result"][0].as_i64())
            };
            return self.submit(&json!({ "put": key, "value": new }), put, RegisterOperation::OpenPut(new));
        }
        let expected = self.seen.get(key).copied().flatten();
        let mut swap = json!({ "compare_and_set": key, "new": new });
        if let Some(expected) = expected {
            swap["expected"] = json!(expected);
        }
        let swapped = |json: &Value| RegisterOperation::Swap(expected, new, json["outcome"] == "committed");
        self.submit(&swap, swapped, RegisterOperation::OpenSwap(expected, new))
    }

    fn get(&mut self, key: &str, consistency: &str) -> Option<RegisterOperation> {
        let get = json!([{ "get": key }]);
        let body = json!({ "commands": get, "consistency": consistency, "timeout": OUTCOME_TIMEOUT });
        match self.request("/v1/ledger/read", &body) {
            Reply::Response(200, json) => Some(RegisterOperation::Get(json["result"][0].as_i64())),
            _ => None,
        }
    }

    /// Submits a transaction under one id until its outcome is known. Every second client submits it only once.
    fn submit(
        &mut self,
        command: &Value,
        decided: impl FnOnce(&Value) -> RegisterOperation,
        open: RegisterOperation,
    ) -> Option<RegisterOperation> {
        let tx_id = format!("{:032x}", self.rng.u128(..));
        let mut body = json!({ "commands": [command], "tx_id": tx_id, "birth": self.birth });
        body["timeout"] = json!(OUTCOME_TIMEOUT);
        let mut may_happen = false;
        for _ in 0..if self.id.is_multiple_of(2) { SUBMISSIONS } else { 1 } {
            match self.request("/v1/ledger/transactions", &body) {
                Reply::Response(200, json) => {
                    let index = json["index"].as_u64().unwrap();
                    self.run.acknowledged.lock().unwrap().push((tx_id, index));
                    return Some(decided(&json));
                }
                Reply::Response(_, problem) if is_without_effect(&problem) => {}
                Reply::NotSent => {}
                _ => may_happen = true,
            }
        }
        may_happen.then_some(open)
    }

    fn request(&mut self, path: &str, body: &Value) -> Reply {
        let reply = self.run.gateways[self.at].send(path, body, RESPONSE_TIMEOUT);
        if let Reply::Response(200, json) = &reply {
            self.birth = self.birth.max(json["index"].as_u64().unwrap());
        } else {
            self.at = self.rng.usize(..self.run.gateways.len());
            thread::sleep(Duration::from_millis(20));
        }
        reply
    }
}

fn is_without_effect(problem: &Value) -> bool {
    let name = problem["type"].as_str().and_then(|name| name.strip_prefix("/problems/"));
    name.is_some_and(|name| WITHOUT_EFFECT.contains(&name))
}

/// Reads the whole history while it grows.
#[derive(Default)]
struct Witness {
    /// The index of each transaction, by its id.
    indices: HashMap<String, u64>,
    after: u64,
    /// The number of indices that no daemon kept until they were read.
    missed: u64,
}

impl Witness {
    /// Reads the next page from each daemon in turn. Returns true if the last one has no further entries.
    fn read(&mut self, gateways: &[Gateway]) -> bool {
        let (mut is_end, mut compacted) = (false, Vec::new());
        for gateway in gateways {
            let path = format!("/v1/ledger/history?limit={PAGE}&after={}", self.after);
            match gateway.send(&path, &Value::Null, RESPONSE_TIMEOUT) {
                Reply::Response(200, page) => {
                    for entry in page["entries"].as_array().unwrap() {
                        self.after = entry["index"].as_u64().unwrap();
                        let Some(tx_id) = entry["tx_id"].as_str() else { continue };
                        let before = self.indices.insert(tx_id.to_owned(), self.after);
                        assert_eq!(before, None, "{tx_id} is in the history again, at {}", self.after);
                    }
                    is_end = page["next"].is_null();
                }
                Reply::Response(410, problem) => compacted.push(problem["first"].as_u64().unwrap()),
                _ => {}
            }
        }
        if let Some(first) = compacted.iter().min().filter(|_| compacted.len() == gateways.len()) {
            self.missed += first - 1 - self.after;
            self.after = first - 1;
        }
        is_end
    }
}

/// Lets all clients act concurrently under faults, and checks their history. Asserts that each acknowledged transaction is
/// in the history of the ledger once, at its acknowledged index.
pub(crate) fn run(
    cluster: &mut Cluster,
    clients: Clients,
    happen: impl FnOnce(&mut Cluster, &Progress<'_>),
) -> Figures {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let mut witness =
        Witness { after: cluster.until_equal()["index"].as_u64().unwrap(), ..Witness::default() };
    let run = Run {
        number: RUNS.fetch_add(1, Ordering::Relaxed),
        gateways: cluster.accesses().iter().map(Gateway::open).collect(),
        began: Instant::now(),
        enough: AtomicBool::new(false),
        done: AtomicUsize::new(0),
        next_value: AtomicI64::new(1),
        histories: Mutex::default(),
        acknowledged: Mutex::default(),
    };
    thread::scope(|scope| {
        let _ending = Ending(&run.enough);
        for id in 0..clients.count {
            let (run, lease_reads) = (&run, clients.lease_reads);
            // Another run of the same ledger draws other transaction ids.
            let seed = clients.seed * 1_000_000 + u64::from(run.number) * 1000 + id as u64;
            let rng = Rng::with_seed(seed);
            let at = id % run.gateways.len();
            let mut client = Client { run, id, lease_reads, at, birth: 0, seen: HashMap::new(), rng };
            scope.spawn(move || {
                while !run.enough.load(Ordering::Relaxed) {
                    client.act();
                }
            });
        }
        let (run, witness) = (&run, &mut witness);
        scope.spawn(move || {
            while !run.enough.load(Ordering::Relaxed) {
                if witness.read(&run.gateways) {
                    thread::sleep(Duration::from_millis(100));
                }
            }
        });
        happen(cluster, &Progress(run));
    });
    let figures = check(&run, clients.seed);
    cluster.until_equal();
    until("the history is read to its end", || {
        if witness.read(&run.gateways) { Ok(()) } else { Err(witness.after.to_string()) }
    });
    let acknowledged = run.acknowledged.into_inner().unwrap();
    let found = acknowledged.iter().filter(|(tx_id, index)| {
        let at = witness.indices.get(tx_id);
        assert!(
            at == Some(index) || (at.is_none() && witness.missed > 0),
            "{tx_id} is not at {index}: {at:?}"
        );
        at.is_some()
    });
    let (found, all) = (found.count(), acknowledged.len());
    eprintln!(
        "{figures:?}; {found} of {all} acknowledged transactions are in the history that was read, once each"
    );
    figures
}

/// Checks the history of each register. Writes those that are not linearizable to files.
fn check(run: &Run, seed: u64) -> Figures {
    let mut figures = Figures::default();
    let mut acknowledged = vec![0, run.now()];
    for (key, history) in &*run.histories.lock().unwrap() {
        figures.operations += history.len();
        for operation in history {
            match operation.op {
                RegisterOperation::Get(_) => {}
                RegisterOperation::OpenPut(_) | RegisterOperation::OpenSwap(..) => figures.unknown += 1,
                _ => acknowledged.push(operation.return_time),
            }
        }
        let checked = porcupine_rs::check_operations_timeout(history, CONDITION_TIMEOUT);
        if checked != CheckResult::Ok {
            let path = format!("{}/history-{seed}-{key}.txt", env!("CARGO_TARGET_TMPDIR"));
            let line = |it: &Operation<Register>| {
                format!("{} {} {:?} {:?}\n", it.call_time, it.return_time, it.client_id, it.op)
            };
            std::fs::write(&path, history.iter().map(line).collect::<String>()).unwrap();
            figures.anomalies.push(format!("{checked:?}: {path}"));
        }
    }
    acknowledged.sort_unstable();
    figures.acknowledged = acknowledged.len() - 2;
    let gaps = acknowledged.windows(2).map(|pair| pair[1].abs_diff(pair[0]));
    figures.longest_gap = Duration::from_nanos(gaps.max().unwrap_or_default());
    figures
}

#[test]
fn the_check_finds_stale_reads_and_lost_writes() {
    use RegisterOperation::{Get, OpenPut, Put};
    let check = |operations: &[(RegisterOperation, i64, i64)]| {
        let operation = |(op, call_time, return_time): &(RegisterOperation, i64, i64)| Operation::<Register> {
            client_id: None,
            call_time: *call_time,
            return_time: *return_time,
            op: op.clone(),
            metadata: None,
        };
        porcupine_rs::check_operations(&operations.iter().map(operation).collect::<Vec<_>>())
    };
    let (first, second) = ((Put(1, None), 0, 1), (Put(2, Some(1)), 2, 3));
    assert!(check(&[first.clone(), second.clone(), (Get(Some(1)), 2, 5)]));
    assert!(!check(&[first.clone(), second.clone(), (Get(Some(1)), 4, 5)]), "a stale read");
    assert!(!check(&[first.clone(), second, (Get(None), 4, 5)]), "a lost write");
    let open = (OpenPut(7), 0, i64::MAX);
    assert!(check(&[open.clone(), first.clone(), (Get(Some(1)), 2, 3), (Get(Some(7)), 4, 5)]));
    assert!(check(&[open.clone(), first.clone(), (Get(Some(1)), 2, 3)]), "an open write need not happen");
    assert!(!check(&[open, first, (Get(Some(7)), 2, 3), (Get(Some(1)), 4, 5)]), "it happens once");
}

#[test]
fn histories_are_linearizable_when_leaders_are_killed_and_paused() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let clients = Clients { count: 6, lease_reads: 2, seed: 1 };
    let figures = run(&mut cluster, clients, |cluster, progress| {
        progress.wait_for(100);
        let killed = cluster.leader();
        cluster.daemons[killed].kill();
        progress.wait_for(100);
        cluster.daemons[killed].start();
        progress.wait_for(100);
        let paused = cluster.leader();
        cluster.daemons[paused].pause();
        let others = cluster.others(paused);
        cluster.leader_among(&others);
        progress.wait_for(100);
        cluster.daemons[paused].resume();
        progress.wait_for(100);
    });
    assert_eq!(figures.anomalies, [""; 0]);
}
