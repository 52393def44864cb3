//! Sixteen real processes contend for one lock of one Postgres: all get their turn, and soon.

use std::time::Duration;

use holdoff_lock::Settings;
use holdoff_testbed::Postgres;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::node::{self, Process, Resource, assert_exclusive};

const PROCESSES: usize = 16;
const ROUNDS: usize = 20;
const HOLD: Duration = Duration::from_millis(10);

/// Serialises the tests: two concurrent tests would disturb each other's timing.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn database() -> String {
    tokio::task::spawn_blocking(|| Postgres::shared().create_database("contention")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_gets_its_turn_before_others_have_had_three() {
    let _alone = ALONE.lock().await;
    let (url, folder) = (database().await, TempDir::new().unwrap());
    let resource = format!("sqlite:{}", folder.path().join("resource.db").display());
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Process::start(&url, "contention", &resource, None).await);
    }
    let rounds = format!("ROUNDS ledger {ROUNDS} {} 30000", HOLD.as_millis());
    for process in &mut processes {
        process.send(&rounds).await;
    }
    let mut most = 0;
    for process in &mut processes {
        let answer = process.answer().await;
        let turns = answer.strip_prefix("done ").unwrap_or_else(|| panic!("{answer}"));
        most = most.max(turns.parse().unwrap());
    }
    println!("{PROCESSES} processes, {ROUNDS} turns each: at most {most} turns of others during one wait");
    let events = Resource::open(&resource).await.events().await;
    assert_eq!(assert_exclusive(&events), PROCESSES * ROUNDS);
    assert!(most <= 3 * PROCESSES, "a process waited for {most} turns of others");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_granted_the_lock_after_the_lease_of_a_killed_holder() {
    const LEASE: Duration = Duration::from_secs(2);
    let _alone = ALONE.lock().await;
    let (url, folder) = (database().await, TempDir::new().unwrap());
    let resource = format!("sqlite:{}", folder.path().join("resource.db").display());
    let locks = node::open(&url, Settings::default().with_namespace("contention")).await;
    let mut killed = Process::start(&url, "contention", &resource, None).await;
    killed.send(&format!("ACQUIRE ledger {} 1000", LEASE.as_millis())).await;
    let token = killed.granted().await;
    let waiting = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.acquire("ledger").await.unwrap() })
    };
    while locks.inspect("ledger").await.unwrap().unwrap().waiting == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(killed.request("VALID").await, "true");
    killed.signal(Signal::KILL);
    let guard = waiting.await.unwrap();
    assert!(guard.token().get() > token);
}
