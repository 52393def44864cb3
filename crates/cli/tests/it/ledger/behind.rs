//! Members that are far behind: a voter that is down for good, and a new member that needs a large state. Both print the rate
//! of the load beside them, and the memory of the processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use holdoff_testbed::scaled;
use serde_json::{Value, json};

use crate::ledger::cluster::{Cluster, Daemon, role};
use crate::ledger::environment::{DaemonAccess, Loopback, until};

/// The number of concurrent clients.
const CLIENTS: u64 = 16;
const MIB: u64 = 1 << 20;

/// Submits this many transactions from concurrent clients, each of which may fail, unless the load is told to end. Returns
/// the number of committed transactions a second.
fn load(access: &DaemonAccess, count: u64, ends: &Arc<AtomicBool>, body: fn(u64) -> Value) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (client, url) = (reqwest::Client::new(), format!("http://{}/v1/ledger/transactions", access.listen));
    let begin = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|first| {
            let (client, url, ends) = (client.clone(), url.clone(), ends.clone());
            runtime.spawn(async move {
                let mut committed = 0_u32;
                for number in (first..count).step_by(usize::try_from(CLIENTS).unwrap()) {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let answer = client.post(&url).json(&body(number)).send().await;
                    committed += u32::from(answer.is_ok_and(|answer| answer.status() == 200));
                }
                committed
            })
        })
        .collect();
    let committed: u32 = clients.into_iter().map(|client| runtime.block_on(client).unwrap()).sum();
    f64::from(committed) / begin.elapsed().as_secs_f64()
}

fn increment(_: u64) -> Value {
    json!({ "commands": [{ "increment": "sum", "by": 1 }] })
}

/// Rows of 16 KiB, several in one transaction.
fn rows(number: u64) -> Value {
    let put = |row| json!({ "put": format!("row {number} {row}"), "value": "x".repeat(16_000) });
    json!({ "commands": (0..ROWS).map(put).collect::<Vec<_>>() })
}

const ROWS: u64 = 12;

/// The state, the entries of the log and the history share the values of a transaction.
#[test]
fn the_memory_of_a_ledger_is_bounded_by_its_size_on_disk() {
    let mut cluster = Cluster::start(&Loopback::new(1), 1);
    let (daemon, never) = (&cluster.daemons[0], Arc::default());
    let empty = daemon.memory();
    load(&daemon.access, 96 * MIB / (ROWS * 16_000), &never, rows);
    let on_disk = || {
        let files = std::fs::read_dir(cluster.daemons[0].ledger()).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let (after, disk) = (daemon.memory() - empty, on_disk());
    cluster.daemons[0].terminate();
    cluster.daemons[0].start();
    cluster.until_all_vote();
    let restarted = cluster.daemons[0].memory().saturating_sub(empty);
    println!(
        "96 MiB of values: {} MiB on disk, {} in memory, {} after a restart",
        disk / MIB,
        after / MIB,
        restarted / MIB
    );
    for memory in [after, restarted] {
        assert!(2 * memory <= 3 * disk, "{memory} bytes in memory, {disk} on disk");
    }
}

#[test]
fn a_voter_that_is_down_for_good_costs_the_leader_little() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let leader = cluster.leader();
    let (access, count, never) = (cluster.daemons[leader].access.clone(), 4000, Arc::default());
    load(&access, count, &never, increment);
    let all_up = load(&access, count, &never, increment);
    let before = cluster.daemons[leader].memory();
    let down = cluster.others(leader)[0];
    cluster.daemons[down].kill();
    let one_down = load(&access, count, &never, increment);
    let after = cluster.daemons[leader].memory();
    println!(
        "all up: {all_up:.0} tx/s, {} MiB at the leader; one of three down: {one_down:.0} tx/s, {} MiB",
        before / MIB,
        after / MIB
    );
    let dropped = metric(&access, "holdoff_ledger_messages_dropped_total", "direction=\"out\"");
    assert_eq!(dropped, 0, "the leader sends a voter that is down more than its queue holds");
    assert!(after < before + 48 * MIB, "the memory of the leader grew from {before} to {after}");
    assert_eq!(cluster.leader_among(&cluster.others(down)), leader);
    cluster.daemons[down].start();
    cluster.until_equal();
}

/// `HOLDOFF_SNAPSHOT_MIB` is the size of the state. The new member is killed while it receives the state.
#[test]
fn a_state_is_streamed_to_a_new_member_under_load() {
    let size = scaled("HOLDOFF_SNAPSHOT_MIB", 24, 300);
    let (environment, never) = (Loopback::new(4), Arc::default());
    let mut cluster = Cluster::start(&environment, 3);
    let access = cluster.daemons[cluster.leader()].access.clone();
    let filled = load(&access, size * MIB / (ROWS * 16_000), &never, rows);
    println!("filled {size} MiB with {filled:.0} tx/s of {ROWS} rows");
    for number in 0..3 {
        // A node that is still applying the load answers late.
        until("the node takes a snapshot", || {
            let output = cluster.daemons[number].access.try_run(&["snapshot"]);
            if output.code == 0 { Ok(()) } else { Err(format!("{output:?}")) }
        });
        // After a restart a daemon has no entries that it could send instead of the state.
        cluster.daemons[number].terminate();
        cluster.daemons[number].start();
        cluster.until_all_vote();
    }
    let leader = cluster.leader();
    let (access, contact) = (cluster.daemons[leader].access.clone(), cluster.daemons[leader].contact());
    let before: Vec<_> = cluster.daemons.iter().map(Daemon::memory).collect();
    let mut new = cluster.new_daemon(&environment);
    new.init_and_start(Some(&contact));
    let (has_state, mut begin) = (Arc::new(AtomicBool::new(false)), Instant::now());
    std::thread::scope(|scope| {
        let under_load = scope.spawn(|| load(&access, u64::MAX, &has_state, increment));
        access.run(&["members", "add", &new.contact(), "--name", "new"]);
        loop {
            until("the new member has stored chunks", || {
                let chunks = metric(&new.access, "holdoff_ledger_snapshot_chunks_received_total", "");
                if chunks >= 32 { Ok(()) } else { Err(format!("{chunks} chunks")) }
            });
            new.kill();
            new.start();
            until("the new member votes", || role(&new.access, "follower"));
            let continued = new.logged("found a part of a snapshot, and continues to receive it");
            if continued.iter().any(|line| line["stored"].as_u64() >= Some(16)) {
                break;
            }
            // It was killed after it had received the whole state.
            new.kill();
            begin = Instant::now();
            new.join_again(&contact);
        }
        let seconds = begin.elapsed().as_secs_f64();
        has_state.store(true, Ordering::Relaxed);
        println!(
            "{size} MiB reached the new member after {seconds:.1} s and a kill, beside {:.0} tx/s; MiB before: {:?}, after: {:?}, \
             new: {}",
            under_load.join().unwrap(),
            before.iter().map(|bytes| bytes / MIB).collect::<Vec<_>>(),
            cluster.daemons.iter().map(|daemon| daemon.memory() / MIB).collect::<Vec<_>>(),
            new.memory() / MIB
        );
    });
    cluster.daemons.push(new);
    cluster.until_equal();
    let value = cluster.daemons[3].access.run(&["get", "row 0 0", "--consistency", "local"]);
    assert_eq!(value["value"].as_str().map(str::len), Some(16_000));
}

/// Returns the value of a metric with this label, for the daemon's only ledger.
fn metric(access: &DaemonAccess, name: &str, label: &str) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("http://{}/metrics", access.listen);
    let text = runtime.block_on(async { reqwest::get(url).await.unwrap().text().await.unwrap() });
    let line = text.lines().find(|line| line.starts_with(name) && line.contains(label));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}
