//! A hundred equal signals over three daemons: one task, an exact count, and a bounded load on the store.

use std::sync::Arc;
use std::time::Duration;

use holdoff_lock::Locks;
use holdoff_policy::PolicySet;
use holdoff_server::StoreUrl;
use holdoff_testbed::kubernetes::{Kubernetes, Verb};
use holdoff_testbed::{Options, Postgres};
use holdoff_work::{Fingerprint, Settings, Step, Task, Work};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::time::Instant;

use crate::support::{Daemon, options};

const SIGNALS: usize = 100;
/// How long another client holds the lock while all senders wait.
const HELD: Duration = Duration::from_secs(1);
/// The interval of a sender that polls.
const POLL: Duration = Duration::from_millis(100);

fn fingerprint() -> Fingerprint {
    Fingerprint::of(["text", "disk full"])
}

async fn three(place: &StoreUrl, locks: impl Fn() -> Option<Locks>) -> Vec<Daemon> {
    let mut daemons = Vec::new();
    for _ in 0..3 {
        let mut options = options(place.clone());
        options.locks = locks();
        daemons.push(Daemon::start_with(options).await);
    }
    daemons
}

/// The tests run one at a time, so that each has the machine to itself for its measurements.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Sends all signals at once while another client holds their lock. Returns the time of the slowest.
async fn send_signals(daemons: &[Daemon], elsewhere: &Locks) -> Duration {
    let held = elsewhere.acquire(format!("signal:{}", fingerprint())).await.unwrap();
    let body = json!({ "fingerprint": "disk full", "task": { "operation": "page.operator" } });
    let mut asked = Vec::new();
    for number in 0..SIGNALS {
        let daemon = &daemons[number % daemons.len()];
        let request = daemon.client.post(format!("{}/v1/signals", daemon.url)).json(&body);
        asked.push(tokio::spawn(async move {
            let began = Instant::now();
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            (status, response.json::<Value>().await.unwrap(), began.elapsed())
        }));
    }
    tokio::time::sleep(HELD).await;
    held.release().await.unwrap();

    let (mut counts, mut tasks, mut created, mut slowest) = (Vec::new(), Vec::new(), 0, Duration::ZERO);
    for answer in asked {
        let (status, answer, took) = answer.await.unwrap();
        assert_eq!(status, if answer["created"] == true { 201 } else { 200 }, "{answer}");
        created += usize::from(status == 201);
        counts.push(answer["occurrences"].as_u64().expect("a count"));
        tasks.push(answer["task"].as_str().expect("a task").to_owned());
        slowest = slowest.max(took);
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=SIGNALS as u64).collect::<Vec<_>>(), "each signal is counted once");
    assert_eq!(created, 1);
    tasks.dedup();
    assert_eq!(tasks.len(), 1, "all responses name the same task");
    slowest
}

/// The same contention without a lock: each sender polls every 100 ms, with one statement each time. When all of them have
/// polled as often as they can while the lock is held, one creates the task.
async fn polling(url: &str) {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Work::open_with(url, PolicySet::default(), Settings::default()).await.unwrap());
    }
    let polls = HELD.as_millis() / POLL.as_millis();
    let have_polled = Arc::new(Barrier::new(SIGNALS));
    let waiting: Vec<_> = (1..SIGNALS)
        .map(|number| {
            let (work, have_polled) = (nodes[number % nodes.len()].clone(), have_polled.clone());
            tokio::spawn(async move {
                for _ in 0..polls {
                    assert!(work.signal_again("default", fingerprint()).await.unwrap().is_none());
                    tokio::time::sleep(POLL).await;
                }
                have_polled.wait().await;
                while work.signal_again("default", fingerprint()).await.unwrap().is_none() {
                    tokio::time::sleep(POLL).await;
                }
            })
        })
        .collect();
    have_polled.wait().await;
    nodes[0].signal(fingerprint(), Task::of(Step::new("page.operator"))).await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_signals_over_three_daemons_on_postgres() {
    let _turn = TURN.lock().await;
    let postgres = logging_postgres();
    let url = postgres.create_database("storm");
    let daemons = three(&StoreUrl::new(&url), || None).await;
    let elsewhere = Locks::postgres(&url).await.unwrap();
    let before = postgres.log().len();
    let slowest = send_signals(&daemons, &elsewhere).await;
    let ours = Statements::of(&postgres.log()[before..]);
    drop(daemons);

    let url = postgres.create_database("polling");
    // The tables are created before the measurement.
    drop(Work::open_with(&url, PolicySet::default(), Settings::default()).await.unwrap());
    let before = postgres.log().len();
    polling(&url).await;
    let theirs = Statements::of(&postgres.log()[before..]);

    println!(
        "Postgres: slowest answer {slowest:?}; ours: {} statements, at most {} in 10 ms; polling: {}, at most {}",
        ours.count(),
        ours.peak(),
        theirs.count(),
        theirs.peak(),
    );
    assert!(theirs.count() >= 5 * SIGNALS, "too few statements in the log: {}", theirs.count());
    assert!(ours.count() >= SIGNALS, "too few statements in the log: {}", ours.count());
    assert!(
        ours.count() < theirs.count() / 2,
        "the daemons execute fewer than half of the statements of polling"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_signals_over_three_daemons_on_sqlite() {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let place = StoreUrl::in_directory(folder.path());
    let daemons = three(&place, || None).await;
    let elsewhere = Locks::open(place.as_str()).await.unwrap();
    let slowest = send_signals(&daemons, &elsewhere).await;
    println!("SQLite: slowest answer {slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_signals_over_three_daemons_on_kubernetes_leases() {
    let _turn = TURN.lock().await;
    let cluster = Kubernetes::start().await;
    let folder = tempfile::tempdir().unwrap();
    let locks = || Locks::kubernetes(cluster.client(), "default");
    let daemons = three(&StoreUrl::in_directory(folder.path()), || Some(locks())).await;
    let elsewhere = locks();
    let slowest = send_signals(&daemons, &elsewhere).await;
    let requests: usize =
        [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete]
            .into_iter()
            .map(|verb| cluster.requests(verb))
            .sum();
    println!("Kubernetes: slowest answer {slowest:?}; {requests} requests");
    assert!(requests < SIGNALS, "polling every 100 ms would be ten times as many: {requests}");
}

/// Each waiter is a small future of its own, and none calls another: a small stack suffices for any number.
#[test]
fn a_thousand_waiters_fit_a_small_stack() {
    let run_waiters = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = Locks::memory();
            let held = locks.acquire("a").await.unwrap();
            let waiting: Vec<_> = (0..1000)
                .map(|_| {
                    let acquire = locks.acquire("a").into_future();
                    tokio::spawn(async move { acquire.await.unwrap().release().await })
                })
                .collect();
            tokio::time::sleep(Duration::from_millis(300)).await;
            held.release().await.unwrap();
            for waiter in waiting {
                waiter.await.unwrap().unwrap();
            }
        });
    };
    let small = std::thread::Builder::new().stack_size(192 * 1024);
    small.spawn(run_waiters).unwrap().join().unwrap();
}

/// A server that logs every statement with its time in milliseconds.
fn logging_postgres() -> Postgres {
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let settings = vec![
        setting("log_statement", "all"),
        setting("log_line_prefix", "%m|"),
        setting("log_timezone", "UTC"),
        setting("log_min_messages", "log"),
    ];
    Postgres::start_with(&Options { settings, ..Options::default() })
}

/// The statements of daemons that accept signals, by the millisecond in which they arrived.
#[derive(Debug, Default)]
struct Statements(Vec<u64>);

impl Statements {
    /// Reads the statements of a part of the log.
    fn of(log: &str) -> Self {
        let mut entries: Vec<(u64, String)> = Vec::new();
        for line in log.lines() {
            match line.split_once('|').and_then(|(stamp, rest)| Some((millis(stamp)?, rest))) {
                Some((at, rest)) => entries.push((at, rest.to_owned())),
                // A continuation line of a statement.
                None => entries.iter_mut().last().into_iter().for_each(|(_, text)| text.push_str(line)),
            }
        }
        let is_theirs = |text: &str| {
            let was_run = text.contains("LOG:  execute") || text.contains("LOG:  statement");
            was_run
                && ["holdoff.signals", "holdoff.lock_", "holdoff.locks"]
                    .iter()
                    .any(|name| text.contains(name))
        };
        Self(entries.into_iter().filter(|(_, text)| is_theirs(text)).map(|(at, _)| at).collect())
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the maximum number of statements in any 10 ms.
    fn peak(&self) -> usize {
        let within = |from: u64| self.0.iter().filter(|at| (from..from + 10).contains(*at)).count();
        self.0.iter().map(|at| within(*at)).max().unwrap_or(0)
    }
}

/// Returns the millisecond of the day of a time such as `2026-11-15 16:22:03.123 UTC`.
fn millis(stamp: &str) -> Option<u64> {
    let time = stamp.strip_suffix(" UTC")?.split_once(' ')?.1;
    let (clock, millis) = time.split_once('.')?;
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts.as_slice() else { return None };
    Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + millis.parse::<u64>().ok()?)
}
