//! Sixteen real processes want one lock of one Postgres: all get their turn, and soon.

use std::time::Duration;

use holdoff_lock::Settings;
use holdoff_testbed::Postgres;
use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::node::{self, Process, Resource, one_at_a_time};

const PROCESSES: u32 = 16;
const ROUNDS: u32 = 20;
const HOLD: Duration = Duration::from_millis(10);

/// One at a time: two at once would measure each other.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn database() -> String {
    tokio::task::spawn_blocking(|| Postgres::shared().create_database("crowd")).await.unwrap()
}

/// How long the same server takes to answer one of many who ask, until nobody wants to know any more: the mean.
async fn round_trip(url: String, mut is_over: tokio::sync::oneshot::Receiver<()>) -> Duration {
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let (mut asked, mut total) = (0, Duration::ZERO);
    while is_over.try_recv().is_err() {
        let begun = Instant::now();
        sqlx::query("select 1").execute(&mut connection).await.unwrap();
        (asked, total) = (asked + 1, total + begun.elapsed());
        tokio::time::sleep(HOLD).await;
    }
    total / asked
}

/// A machine that is busy with something else keeps people waiting too; one whose locks starve somebody does so again.
const TRIES: u32 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_gets_a_turn_and_nobody_waits_for_long() {
    let _alone = ALONE.lock().await;
    for left in (0..TRIES).rev() {
        let (longest, bound) = take_turns().await;
        if longest <= bound {
            return;
        }
        assert!(left > 0, "somebody waited for {longest:?}, and may for {bound:?}");
    }
}

/// The longest wait, and how long it may be.
async fn take_turns() -> (Duration, Duration) {
    let (url, folder) = (database().await, TempDir::new().unwrap());
    let resource = format!("sqlite:{}", folder.path().join("resource.db").display());
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Process::start(&url, "crowd", &resource, None).await);
    }
    let (over, is_over) = tokio::sync::oneshot::channel();
    let measuring = tokio::spawn(round_trip(url, is_over));
    let begun = Instant::now();
    let rounds = format!("ROUNDS ledger {ROUNDS} {} 30000", HOLD.as_millis());
    for process in &mut processes {
        process.tell(&rounds).await;
    }
    let mut longest = Duration::ZERO;
    for process in &mut processes {
        let answer = process.answer().await;
        let micros = answer.strip_prefix("done ").unwrap_or_else(|| panic!("{answer}"));
        longest = longest.max(Duration::from_micros(micros.parse().unwrap()));
    }
    let took = begun.elapsed();
    over.send(()).unwrap();
    let round_trip = measuring.await.unwrap();
    let bound = 3 * PROCESSES * (HOLD + round_trip);
    let turns = PROCESSES * ROUNDS;
    println!(
        "{PROCESSES} processes, {turns} turns of {HOLD:?} in {took:.1?}: the longest wait was {longest:.1?}, the \
         round trip {round_trip:.2?}, so at most {bound:.1?}"
    );
    let events = Resource::open(&resource).await.events().await;
    assert_eq!(one_at_a_time(&events), usize::try_from(turns).unwrap());
    (longest, bound)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_succeeded_within_its_lease_and_a_second() {
    const LEASE: Duration = Duration::from_secs(2);
    let _alone = ALONE.lock().await;
    let (url, folder) = (database().await, TempDir::new().unwrap());
    let resource = format!("sqlite:{}", folder.path().join("resource.db").display());
    let locks = node::open(&url, Settings::default().with_namespace("crowd")).await;
    let mut killed = Process::start(&url, "crowd", &resource, None).await;
    killed.tell(&format!("ACQUIRE ledger {} 1000", LEASE.as_millis())).await;
    let token = killed.granted().await;
    let waiting = {
        let locks = locks.clone();
        tokio::spawn(async move { (locks.acquire("ledger").await.unwrap(), Instant::now()) })
    };
    while locks.inspect("ledger").await.unwrap().unwrap().waiting == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(killed.ask("VALID").await, "true");
    let kill = Instant::now();
    killed.signal(Signal::KILL);
    let (guard, granted) = waiting.await.unwrap();
    let took = granted - kill;
    println!("a killed holder with a lease of {LEASE:?} was succeeded after {took:.1?}");
    assert!(guard.token().get() > token);
    assert!(took <= LEASE + Duration::from_secs(1), "{took:?}");
}
