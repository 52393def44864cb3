//! Faults that repeat while clients read and write, and acquire locks. `cargo xtask soak jepsen` runs them for minutes, and
//! prints the table of their figures.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use holdoff_testbed::{SEED_VARIABLE, scaled, skip};
use serde_json::{Value, json};

use crate::ledger::cluster::{Cluster, Daemon};
use crate::ledger::disks::SlowDisk;
use crate::ledger::environment::{Gateway, Namespaces, Reply, until};
use crate::ledger::leaders::Ending;
use crate::ledger::linear::{self, Clients, Figures};

/// The length of a test, in seconds.
const SECONDS_VARIABLE: &str = "HOLDOFF_JEPSEN_SECONDS";
/// The operations between two faults.
const OPERATIONS: usize = 50;

/// A cluster in network namespaces, and the faults that befall it.
struct Storm {
    name: &'static str,
    cluster: Cluster,
    environment: Namespaces,
    end: Instant,
    seed: u64,
    rng: Rng,
    faults: usize,
    /// The figures of all runs.
    figures: Figures,
}

impl Storm {
    /// Starts a cluster, if network namespaces can be made here.
    fn start(name: &'static str, count: usize, prepare: impl FnMut(usize, &mut Daemon)) -> Option<Self> {
        let seed = scaled(SEED_VARIABLE, 0, 0);
        let seed = if seed == 0 { Rng::new().u64(1..1_000_000) } else { seed };
        eprintln!("{name}: the faults and the operations follow from {SEED_VARIABLE}={seed}");
        let environment = match Namespaces::create(count) {
            Ok(environment) => environment,
            Err(why) => {
                skip(&format!("network namespaces cannot be made here ({why})"));
                return None;
            }
        };
        let cluster = Cluster::start_with(&environment, count, prepare);
        let end = Instant::now() + Duration::from_secs(scaled(SECONDS_VARIABLE, 5, 12));
        let (rng, figures) = (Rng::with_seed(seed), Figures::default());
        Some(Self { name, cluster, environment, end, seed, rng, faults: 0, figures })
    }

    /// Repeats a fault while clients act: at least once, at most this many times, and not after the end.
    fn run(
        &mut self,
        (count, lease_reads): (usize, u8),
        most: usize,
        mut fault: impl FnMut(&mut Cluster, &Namespaces, &mut Rng),
    ) {
        let Self { cluster, environment, rng, end, faults, .. } = self;
        let clients = Clients { count, lease_reads, seed: self.seed };
        let figures = linear::run(cluster, clients, |cluster, progress| {
            for number in 0..most {
                if number > 0 && Instant::now() > *end {
                    break;
                }
                progress.wait_for(OPERATIONS);
                fault(cluster, environment, rng);
                *faults += 1;
            }
            progress.wait_for(OPERATIONS);
        });
        self.figures.add(figures);
    }

    /// Prints the row of the summary. Asserts that the histories of all runs were linearizable.
    fn report(self) {
        let Figures { operations, acknowledged, unknown, anomalies, longest_gap } = &self.figures;
        println!(
            "\n| {} | {} | {operations} | {acknowledged} | {unknown} | {} | {:.1} s |",
            self.name,
            self.faults,
            anomalies.len(),
            longest_gap.as_secs_f64()
        );
        assert!(anomalies.is_empty(), "{SEED_VARIABLE}={}: {anomalies:#?}", self.seed);
    }
}

/// Keeps a fault for a random time.
fn hold(rng: &mut Rng, milliseconds: std::ops::Range<u64>) {
    thread::sleep(Duration::from_millis(rng.u64(milliseconds)));
}

fn kill_and_restart(daemon: &mut Daemon) {
    daemon.kill();
    daemon.start();
}

#[test]
fn members_are_killed_for_good_and_replaced_during_cuts() {
    let Some(mut storm) =
        Storm::start("cuts in one direction, members killed for good and replaced", 4, |_, _| ())
    else {
        return;
    };
    storm.run((8, 2), usize::MAX, |cluster, environment, rng| {
        let count = cluster.daemons.len();
        // Sometimes the leader and its neighbour are partitioned from the others, too.
        if rng.u8(..4) == 0 {
            let leader = cluster.leader();
            environment.partition(&[leader, (leader + 1) % count]);
        }
        for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
            if from != to && rng.u8(..3) == 0 {
                environment.cut(from, to);
            }
        }
        hold(rng, 300..3000);
        let lost = rng.usize(..count);
        let others = cluster.others(lost);
        cluster.daemons[lost].kill();
        // The members that can reach each other may be a majority of the voters, or not.
        let asked = &cluster.daemons[others[rng.usize(..others.len())]].access;
        let mut removing =
            asked.json_command(&["members", "remove", &cluster.daemons[lost].key]).spawn().unwrap();
        hold(rng, 300..3000);
        environment.heal();
        removing.wait().unwrap();
        cluster.replace(environment, lost);
        if rng.bool() {
            kill_and_restart(&mut cluster.daemons[others[0]]);
        }
    });
    storm.report();
}

#[test]
fn a_slow_disk_delays_one_follower_at_full_rate() {
    let Some(mut storm) = Storm::start("a slow disk at one follower, at full rate", 3, |_, _| ()) else {
        return;
    };
    let disk = match SlowDisk::create(&storm.cluster.daemons[0].ledger()) {
        Ok(disk) => disk,
        Err(why) => {
            skip(&format!("the writes of a process cannot be slowed down here ({why})"));
            return;
        }
    };
    storm.run((24, 1), usize::MAX, |cluster, _, rng| {
        let leader = cluster.leader();
        let slow = cluster.others(leader)[rng.usize(..2)];
        disk.slow_down(cluster.daemons[slow].process_id(), rng.u32(5..50));
        hold(rng, 1000..6000);
        let [stored, all] = [slow, leader].map(|it| cluster.daemons[it].access.status()["index"].clone());
        eprintln!("the follower with the slow disk has {stored} of {all} entries");
        match rng.u8(..4) {
            0 => kill_and_restart(&mut cluster.daemons[slow]),
            1 => kill_and_restart(&mut cluster.daemons[leader]),
            2 => {
                // The transfer fails if the follower does not receive the whole log in time.
                let to = ["step-down", "--to", &cluster.daemons[slow].key];
                cluster.daemons[slow].access.try_run(&to);
                hold(rng, 500..2000);
            }
            _ => {}
        }
        disk.end(cluster.daemons[slow].process_id());
    });
    storm.report();
}

#[test]
fn leaders_are_suspended_during_lease_reads() {
    let Some(mut storm) = Storm::start("SIGSTOP of leaders, lease reads", 3, |_, _| ()) else { return };
    storm.run((8, 5), usize::MAX, |cluster, _, rng| {
        let first = cluster.leader();
        cluster.daemons[first].pause();
        hold(rng, 100..4000);
        // In every second fault the next leader is suspended, too, and the first one resumes without a majority.
        let second = rng.bool().then(|| cluster.leader_among(&cluster.others(first)));
        if let Some(second) = second {
            cluster.daemons[second].pause();
        }
        cluster.daemons[first].resume();
        if let Some(second) = second {
            hold(rng, 100..3000);
            cluster.daemons[second].resume();
        }
    });
    storm.report();
}

/// The operator's manual: a node whose store was restored joins again as a new node. A whole ledger that was restored needs
/// no act of the operator: tokens are times.
#[test]
fn tokens_grow_when_nodes_and_ledgers_are_restored() {
    let in_ledger = |_, daemon: &mut Daemon| daemon.variables.push(("HOLDOFF_LOCK_LEDGER", "default"));
    let name = "a node, then the whole ledger restored from backups";
    let Some(mut storm) = Storm::start(name, 3, in_ledger) else { return };
    let grants = Grants { began: Instant::now(), all: Mutex::default() };
    while storm.faults == 0 || Instant::now() < storm.end {
        for daemon in &mut storm.cluster.daemons {
            daemon.terminate();
            daemon.back_up();
        }
        storm.cluster.daemons.iter_mut().for_each(Daemon::start);
        storm.run((6, 2), 2, |cluster, _, rng| {
            grants.contend(cluster, |cluster| {
                let restored = rng.usize(..3);
                cluster.daemons[restored].kill();
                cluster.daemons[restored].restore();
                let member = cluster.daemons[(restored + 1) % 3].contact();
                cluster.daemons[restored].join_again(&member);
                cluster.until_all_vote();
            });
        });
        storm.cluster.daemons.iter_mut().for_each(Daemon::kill);
        storm.cluster.daemons.iter().for_each(Daemon::restore);
        storm.cluster.daemons.iter_mut().for_each(Daemon::start);
        storm.cluster.until_all_vote();
        storm.run((6, 2), 1, |cluster, _, _| {
            grants.contend(cluster, |cluster| {
                let leader = cluster.leader();
                kill_and_restart(&mut cluster.daemons[leader]);
            });
        });
    }
    grants.check();
    storm.report();
}

/// A grant of the lock, with the times of the request and of the response.
#[derive(Clone, Copy, Debug)]
struct Grant {
    called: Duration,
    returned: Duration,
    token: u64,
}

/// All grants of one lock.
struct Grants {
    began: Instant,
    all: Mutex<Vec<Grant>>,
}

impl Grants {
    /// Lets clients at all daemons contend for the lock during a fault, before it, and after it.
    fn contend(&self, cluster: &mut Cluster, fault: impl FnOnce(&mut Cluster)) {
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ending = Ending(&enough);
            for access in cluster.accesses() {
                let enough = &enough;
                scope.spawn(move || self.acquire_until(&Gateway::open(&access), enough));
            }
            self.wait_for_more();
            fault(cluster);
            self.wait_for_more();
        });
    }

    /// Acquires and releases the lock until it is enough.
    fn acquire_until(&self, gateway: &Gateway, enough: &AtomicBool) {
        let wanted = json!({ "key": "deploy", "lease": "2s", "wait": "1s" });
        let timeout = Duration::from_secs(5);
        while !enough.load(Ordering::Relaxed) {
            let called = self.began.elapsed();
            let Reply::Response(200, held) = gateway.send("/v1/locks/acquire", &wanted, timeout) else {
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            let returned = self.began.elapsed();
            self.all.lock().unwrap().push(Grant { called, returned, token: number(&held["token"]) });
            let proof = json!({ "key": "deploy", "token": held["token"], "lock": held["lock"] });
            gateway.send("/v1/locks/release", &proof, timeout);
        }
    }

    fn wait_for_more(&self) {
        let goal = self.all.lock().unwrap().len() + 10;
        until("the lock is granted", || {
            let count = self.all.lock().unwrap().len();
            if count >= goal { Ok(()) } else { Err(format!("{count} of {goal}")) }
        });
    }

    /// Asserts that a grant has a higher token than every grant whose response arrived before its request.
    fn check(self) {
        let mut by_call = self.all.into_inner().unwrap();
        by_call.sort_by_key(|grant| grant.called);
        let mut by_return = by_call.clone();
        by_return.sort_by_key(|grant| grant.returned);
        let (mut earlier, mut highest) = (by_return.iter().peekable(), None::<Grant>);
        for grant in &by_call {
            while let Some(before) = earlier.next_if(|before| before.returned < grant.called) {
                highest = highest.into_iter().chain([*before]).max_by_key(|it| it.token);
            }
            assert!(highest.is_none_or(|highest| grant.token > highest.token), "{highest:?}, then {grant:?}");
        }
        by_call.sort_by_key(|grant| grant.token);
        by_call.dedup_by_key(|grant| grant.token);
        assert_eq!(by_call.len(), by_return.len(), "a token was granted twice");
        eprintln!("{} grants with growing tokens", by_call.len());
    }
}

/// Reads a token: a number, or a string of digits.
fn number(token: &Value) -> u64 {
    token.as_str().unwrap().parse().unwrap()
}
