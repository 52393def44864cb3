//! One run: submit tasks under faults, wait until all are done, and check.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use holdoff_testbed::Postgres;
use holdoff_work::{Task, Work};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::chaos::counts::Counts;
use crate::chaos::effects::Effects;
use crate::chaos::fleet::{Fleet, Places};
use crate::chaos::records::Records;
use crate::chaos::{check, faults, plan, server};

/// The store, the resource, and the server if there is one.
pub(crate) struct ChaosSetup {
    pub(crate) store: String,
    pub(crate) effects: String,
    pub(crate) server: Option<Postgres>,
}

/// The number of batches in which the tasks are submitted.
const BATCHES: usize = 100;

/// The time limit for the remaining steps after the faults: per thousand steps, and the minimum.
const LEFT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(120));

/// The maximum number of runs until every fault has occurred and a late report was seen, which depend on chance and on the
/// speed of the machine.
const MOST_RUNS: u64 = 4;

/// Runs chaos on a store until every fault has occurred, and late reports and lost leases were seen. Every run is checked.
pub(crate) fn run(engine: &str, mut setup: impl FnMut() -> ChaosSetup) {
    let seed = number("HOLDOFF_SEED").unwrap_or_else(|| Rng::new().u64(..));
    let steps = holdoff_testbed::scaled("HOLDOFF_CHAOS_STEPS", 4_000, 20_000);
    let faulty = Duration::from_secs(holdoff_testbed::scaled("HOLDOFF_CHAOS_SECONDS", 12, 25));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (counts, mut missing) = (Arc::new(Counts::default()), None);
    for seed in (0..MOST_RUNS).map(|run| seed.wrapping_add(run)) {
        println!("chaos on {engine}: HOLDOFF_SEED={seed} HOLDOFF_CHAOS_STEPS={steps}");
        let setup = setup();
        let has_server = setup.server.is_some();
        let seen = runtime.block_on(run_chaos(setup, Arc::clone(&counts), seed, steps, faulty));
        let unseen = "stale workers that reported a result, or that noticed the loss of their lease";
        missing = counts.missing(has_server).or((!seen.is_all()).then_some(unseen));
        if missing.is_none() {
            return;
        }
    }
    panic!("{MOST_RUNS} runs had no {}", missing.unwrap_or_default());
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?}")))
}

async fn run_chaos(
    setup: ChaosSetup,
    counts: Arc<Counts>,
    seed: u64,
    steps: u64,
    faulty: Duration,
) -> check::LeaseLog {
    let ChaosSetup { store, effects, server } = setup;
    let folder = tempfile::tempdir().unwrap();
    let log = std::env::var_os("HOLDOFF_CHAOS_LOG").map_or_else(|| folder.path().join("log"), PathBuf::from);
    Effects::open(&effects).unwrap().make().await.unwrap();
    let work = Box::pin(Work::open_with(&store, plan::policies(), plan::settings())).await.unwrap();
    let (begun, has_server) = (Instant::now(), server.is_some());
    let places = Places { store: store.clone(), effects: effects.clone(), seed, log: log.clone() };
    let fleet = Arc::new(Mutex::new(Fleet::start(places, Arc::clone(&counts))));
    let until = begun + faulty;
    let mut rng = Rng::with_seed(seed);
    let mut all = JoinSet::new();
    all.spawn(faults::kill(Arc::clone(&fleet), rng.fork(), until));
    all.spawn(faults::stop(Arc::clone(&fleet), Arc::clone(&counts), rng.fork(), until));
    // Kept until the end of the run, because dropping it stops the server.
    let server = server.map(Arc::new);
    if let Some(server) = &server {
        all.spawn(server::terminate(store.clone(), Arc::clone(&counts), rng.fork(), until));
        all.spawn(server::crash(Arc::clone(server), Arc::clone(&counts), until));
        all.spawn(server::pin(store.clone(), Arc::clone(&counts), until));
    }
    all.spawn(submit(work, plan::tasks(seed, steps), Arc::clone(&counts), faulty));
    while let Some(ended) = all.join_next().await {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    let faults_over = Instant::now();
    let left = wait(&store, steps, faults_over).await;
    faults::lock(&fleet).check();
    drop(fleet);
    let finished = Instant::now();
    print!("{}", counts.shown(has_server));
    if left > 0 {
        let live = Records::live(&store).await.unwrap();
        panic!("{left} steps are not done:\n{}\nthe end of the log:\n{}", live.join("\n"), tail(&log));
    }
    let seen = check::LeaseLog::in_log(&log);
    print!("{seen}");
    let records = Records::read(&store, &effects).await.unwrap();
    check::check(&records, seed, steps, has_server, begun.elapsed());
    println!(
        "  done: faults for {:.1?}, the rest in {:.1?}, checked in {:.1?}",
        faults_over - begun,
        finished - faults_over,
        finished.elapsed()
    );
    seen
}

/// Submits all tasks, spread over the time of the faults. A submission without a response is repeated under the same
/// key.
async fn submit(work: Work, tasks: Vec<Task>, counts: Arc<Counts>, faulty: Duration) {
    let batches: Vec<Vec<Task>> = tasks.chunks(tasks.len().div_ceil(BATCHES)).map(<[Task]>::to_vec).collect();
    let pause = faulty.mul_f64(0.8) / u32::try_from(BATCHES).unwrap();
    for batch in batches {
        let due = Instant::now() + pause;
        while let Err(error) = work.submit_all(batch.clone()).await {
            assert!(error.is_transient(), "a submission was refused: {error}");
            counts.resubmissions.add(1);
        }
        tokio::time::sleep_until(due).await;
    }
}

/// Waits until this number of steps is done. Returns the number of missing steps if that takes too long.
async fn wait(store: &str, steps: u64, since: Instant) -> u64 {
    let (each, least) = LEFT;
    let patience = least.max(each * u32::try_from(steps / 1000).unwrap());
    loop {
        let done = Records::count_done(store).await.unwrap_or(0);
        if done >= steps || since.elapsed() > patience {
            return steps.saturating_sub(done);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
