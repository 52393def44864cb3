//! From due to started on a daemon, and the daemon's load on the store while it is idle.
//!
//! All times are by the store's clock. A step is due when it is submitted, and again after the delay that its failed
//! attempt recorded. A task that a program submits in its own transaction, without a wake after the commit, shows the
//! time of polling (SQLite: of the check for changes).

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_work::{HttpStep, PageRequest, Settings, StepFilter, StepRecord, StepState, Task, Work};
use sqlx::{PgPool, SqlitePool};

use super::soak::target;
use super::{Daemon, postgres};
use crate::measure::{Times, now};
use crate::row::Row;

/// The number of tasks of each kind, and the time between two: the daemon is idle in between.
const TASKS: usize = 300;
const PAUSE: Duration = Duration::from_millis(23);
/// The required p99, in milliseconds.
const BAR: f64 = 20.0;
/// The length of the idle time, after the daemon has started.
const IDLE: Duration = Duration::from_secs(20);
const STARTED: Duration = Duration::from_secs(5);

pub(crate) fn rows() -> Vec<Row> {
    let measured = || -> Result<Vec<Row>, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let target = target().map_err(|error| error.to_string())?;
        let url = format!("http://{target}");
        let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
        let mut rows = measure("SQLite", &file("busy.db"), &file("idle.db"), &url)?;
        if let Some(server) = postgres() {
            let (busy, idle) = (server.create_database("busy"), server.create_database("idle"));
            rows.extend(measure("Postgres", &busy, &idle, &url)?);
        }
        Ok(rows)
    };
    measured().unwrap_or_else(|why| {
        eprintln!("latency: not measured, {why}");
        vec![Row::beside("due to started", "ms", f64::NAN, ("", f64::NAN)).bar("measured", false)]
    })
}

fn measure(name: &str, busy: &str, idle: &str, target: &str) -> Result<Vec<Row>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let daemon = Daemon::start(busy)?;
    let mut rows = Vec::new();
    for (what, path, bar) in [
        ("submitted", "/", Some(BAR)),
        ("retried", "/fail-first", Some(BAR)),
        ("submit_in, no wake", "/", None),
    ] {
        let operation = format!("latency.{}", rows.len());
        let task = || Task::http(&*operation, &HttpStep::post(format!("{target}{path}")));
        let mut times = runtime.block_on(async {
            let work = Work::attach(busy, PolicySet::default(), Settings::default());
            let work = work.await.map_err(|error| error.to_string())?;
            if bar.is_some() {
                // More calls succeed than fail, so that the destination's breaker stays closed.
                let others = if path == "/" { 0 } else { 3 };
                submit_over_http(&daemon, &operation, target, path, others)?;
            } else {
                submit_in_transactions(&work, busy, task).await?;
            }
            starts(&work, &operation).await
        })?;
        let row =
            |share: &str, ms| Row::beside(&format!("{name}: {what}, {share}"), "ms", ms, ("", f64::NAN));
        let (median, p99) = (times.ms(500), times.ms(990));
        rows.push(row("median", median));
        rows.push(match bar {
            Some(bar) => row("p99", p99).bar(&format!("≤ {bar}"), p99 <= bar),
            None => row("p99", p99),
        });
    }
    drop(daemon);
    let statements =
        Row::beside(&format!("{name}: statements, idle"), "/s", idle_statements(idle)?, ("", f64::NAN));
    rows.push(statements);
    Ok(rows)
}

/// Sends the tasks one after the other, each after this many others that succeed.
fn submit_over_http(
    daemon: &Daemon,
    operation: &str,
    target: &str,
    path: &str,
    others: usize,
) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(&daemon.address).map_err(failed)?;
    let request = |operation: &str, path: &str| {
        let http = serde_json::json!({ "url": format!("{target}{path}"), "body": 17 });
        let body = serde_json::json!({ "operation": operation, "http": http }).to_string();
        format!(
            "POST /v1/tasks HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            daemon.address,
            body.len()
        )
    };
    let (own, other) = (request(operation, path), request("latency.other", "/"));
    let mut answer = vec![0; 16 * 1024];
    for number in 0..TASKS * (others + 1) {
        let request = if number % (others + 1) == others { &own } else { &other };
        std::io::Write::write_all(&mut stream, request.as_bytes()).map_err(failed)?;
        let mut filled = 0;
        while super::length(answer.get(..filled).unwrap_or_default()).is_none_or(|whole| filled < whole) {
            let room = answer.get_mut(filled..).unwrap_or_default();
            match std::io::Read::read(&mut stream, room).map_err(failed)? {
                0 => return Err("the daemon closed the connection".to_owned()),
                read => filled += read,
            }
        }
        wait(PAUSE);
    }
    Ok(())
}

async fn submit_in_transactions(work: &Work, url: &str, task: impl Fn() -> Task) -> Result<(), String> {
    let failed = |error: sqlx::Error| error.to_string();
    for _ in 0..TASKS {
        let prepared = work.prepare(vec![task()]).await.map_err(|error| error.to_string())?;
        if url.starts_with("postgres") {
            let pool = PgPool::connect_lazy(url).map_err(failed)?;
            let mut tx = pool.begin().await.map_err(failed)?;
            let submitted = holdoff_work::postgres::submit_in(work, &mut tx, &prepared).await;
            submitted.map_err(|error| error.to_string())?;
            tx.commit().await.map_err(failed)?;
        } else {
            let pool = SqlitePool::connect_lazy(url).map_err(failed)?;
            let mut tx = pool.begin_with("begin immediate").await.map_err(failed)?;
            let submitted = holdoff_work::sqlite::submit_in(work, &mut tx, &prepared).await;
            submitted.map_err(|error| error.to_string())?;
            tx.commit().await.map_err(failed)?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Returns the times from due to started, when all steps of the operation have succeeded.
async fn starts(work: &Work, operation: &str) -> Result<Times, String> {
    let mut filter = StepFilter::default();
    filter.operation = Some(operation.to_owned());
    let page = PageRequest::first(PageRequest::MAX_LIMIT);
    let deadline = now() + Duration::from_secs(60);
    let steps: Vec<StepRecord> = loop {
        let steps = work.list(&filter, &page).await.map_err(|error| error.to_string())?;
        if steps.len() == TASKS && steps.iter().all(|step| step.state == StepState::Succeeded) {
            break steps;
        }
        if now() > deadline {
            return Err(format!("{} of {TASKS} steps were accepted, and not all succeeded", steps.len()));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let mut times = Times::default();
    for step in steps {
        let task = work.task_outline(step.id.task).await.map_err(|error| error.to_string())?;
        let failed = task.as_ref().and_then(|task| task.attempts.last());
        let waited = failed.map(|failed| failed.took + failed.delay.unwrap_or_default());
        let due_after = failed.map_or(step.created_at, |failed| failed.started_at);
        let started = step.last_attempted_at.ok_or("a step has succeeded without an attempt")?;
        times.add(started.since(due_after).saturating_sub(waited.unwrap_or_default()));
    }
    Ok(times)
}

/// Returns the statements a second of a daemon without work.
fn idle_statements(store: &str) -> Result<f64, String> {
    let mut daemon = Daemon::start_with(store, "warn,sqlx::query=debug", Stdio::piped(), &[])?;
    let log = daemon.process.stderr.take().ok_or("the pipe to the process is missing")?;
    let counting = std::thread::spawn(move || {
        let lines = BufReader::new(log).lines().map_while(Result::ok);
        lines.filter(|line| line.contains("sqlx::query")).map(|_| now()).collect::<Vec<_>>()
    });
    wait(STARTED);
    let since = now();
    wait(IDLE);
    drop(daemon);
    let seen = counting.join().map_err(|_| "the log could not be read")?;
    let count = seen.iter().filter(|at| **at >= since).count();
    Ok(f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / IDLE.as_secs_f64())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark waits")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}
