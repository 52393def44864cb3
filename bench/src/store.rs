//! The performance of our stores alone: SQLite's rate, the rate beside a long backlog, and the start latency
//! of due steps. Two processes work, as in [`crate::work`].

use std::time::Duration;

use holdoff_testbed::{Options, Postgres, postgres_binaries};
use holdoff_work::{PageRequest, StepFilter, StepState, Work};

use crate::measure::now;
use crate::row::Row;
use crate::work;

const STEPS: u32 = 100_000;
/// The number of steps that are due tomorrow while others run.
const BACKLOG: u32 = 1_000_000;
const TOMORROW: Duration = Duration::from_secs(24 * 60 * 60 - 1);
const ROUNDS: usize = 3;
/// The duration and the rate of the latency measurement.
const PACE: Duration = Duration::from_secs(10);
const PER_SECOND: u32 = 1000;

pub(crate) fn rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let measured = runtime.block_on(measure());
    measured.unwrap_or_else(|why| {
        eprintln!("store: not measured, {why}");
        Vec::new()
    })
}

async fn measure() -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let mut rows = Vec::new();
    rows.extend(store("SQLite", &file("empty.db"), &file("backlog.db"), Some(20_000.0)).await?);
    if postgres_binaries().is_some() {
        let settings = vec![("shared_buffers".to_owned(), "256MB".to_owned())];
        let server = Postgres::start_with(&Options { fsync: true, settings });
        let (empty, backlog) = (server.create_database("empty"), server.create_database("backlog"));
        rows.extend(store("Postgres", &empty, &backlog, None).await?);
    }
    Ok(rows)
}

async fn store(name: &str, empty: &str, backlog: &str, bar: Option<f64>) -> Result<Vec<Row>, String> {
    let (alone, behind) = (work::open(empty).await?, work::open(backlog).await?);
    eprintln!("store: {name}: submitting a backlog of {BACKLOG} steps");
    work::submit_all(&behind, BACKLOG, TOMORROW).await?;
    let (mut rate, mut rate_behind) = (0.0_f64, 0.0_f64);
    for _ in 0..ROUNDS {
        let (here, there) = (process(&alone, empty).await?, process(&behind, backlog).await?);
        eprintln!("store: {name}: {here:.0}/s alone, {there:.0}/s beside the backlog");
        (rate, rate_behind) = (rate.max(here), rate_behind.max(there));
    }
    let (median, p99) = latencies(&alone, empty).await?;
    let row = Row::beside(&format!("{name}: process"), "/s", rate, ("", f64::NAN));
    let row = match bar {
        Some(bar) => row.bar(&format!("≥ {bar:.0}"), rate >= bar),
        None => row,
    };
    let backlog =
        Row::beside(&format!("{name}: beside a million waiting"), "/s", rate_behind, ("empty table", rate));
    let latency = format!("{name}: due to started, {PER_SECOND}/s");
    Ok(vec![
        row,
        backlog.bar("≥ 75 %", rate_behind >= 0.75 * rate),
        Row::beside(&format!("{latency}, median"), "ms", median, ("", f64::NAN)),
        Row::beside(&format!("{latency}, p99"), "ms", p99, ("", f64::NAN)),
    ])
}

/// Returns the steps a second, from the start signal until no step is due or running.
async fn process(work: &Work, url: &str) -> Result<f64, String> {
    work::submit_all(work, STEPS, Duration::ZERO).await?;
    let mut workers = work::workers(url)?;
    let start = now();
    for worker in &mut workers {
        worker.go()?;
    }
    // The list begins with the newest steps, and the backlog contains the oldest.
    let live = StepFilter::states([StepState::Ready, StepState::Running]);
    loop {
        let newest = work.list(&live, &PageRequest::first(1)).await.map_err(|error| error.to_string())?;
        let is_unfinished = newest
            .iter()
            .any(|step| step.due_at.is_some_and(|due| due.since(step.created_at) < TOMORROW / 2));
        if !is_unfinished {
            break;
        }
        if workers.iter_mut().any(work::Process::has_ended) {
            return Err("a worker process has ended".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(f64::from(STEPS) / start.elapsed().as_secs_f64())
}

/// Returns the latency from due to claimed, by the store's clock, in milliseconds: median and p99.
async fn latencies(work: &Work, url: &str) -> Result<(f64, f64), String> {
    let before =
        work.list(&StepFilter::default(), &PageRequest::first(1)).await.map_err(|error| error.to_string())?;
    let mut workers = work::workers(url)?;
    for worker in &mut workers {
        worker.go()?;
    }
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let ticks = u32::try_from(PACE.as_millis() / 10).unwrap_or(1);
    for _ in 0..ticks {
        tick.tick().await;
        work::submit_all(work, PER_SECOND / 100, Duration::ZERO).await?;
    }
    let live = StepFilter::states([StepState::Ready, StepState::Running]);
    while !work.list(&live, &PageRequest::first(1)).await.map_err(|error| error.to_string())?.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(workers);
    let mut waits = Vec::new();
    let mut page = PageRequest::first(PageRequest::MAX_LIMIT);
    'pages: loop {
        let steps = work.list(&StepFilter::states([StepState::Succeeded]), &page).await;
        let steps = steps.map_err(|error| error.to_string())?;
        let Some(last) = steps.last() else { break };
        page = PageRequest::first(PageRequest::MAX_LIMIT).after(last.id);
        for step in &steps {
            if before.first().is_some_and(|before| before.id == step.id) {
                break 'pages;
            }
            waits.extend(step.last_attempted_at.map(|claimed| claimed.since(step.created_at)));
        }
    }
    waits.sort();
    let at =
        |share: usize| waits.get(waits.len() * share / 100).map_or(f64::NAN, |wait| wait.as_secs_f64() * 1e3);
    Ok((at(50), at(99)))
}
