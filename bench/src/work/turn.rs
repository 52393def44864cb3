//! One contestant's turn: a fresh database, submission, processing.

use std::time::Duration;

use holdoff_testbed::Postgres;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::runtime::Runtime;

use super::contestant::{Contestant, Process, Unfinished, run};
use super::{SUBMIT_BATCH, WORKERS};
use crate::measure::now;

/// The polling interval for completion: one index lookup, a negligible load for the server.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The timeout of processing.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(300);

/// Jobs per second.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    pub(super) submit: f64,
    pub(super) process: f64,
}

impl Rates {
    pub(super) const NONE: Self = Self { submit: f64::NAN, process: f64::NAN };

    pub(super) fn best(self, other: Self) -> Self {
        Self { submit: self.submit.max(other.submit), process: self.process.max(other.process) }
    }
}

pub(super) fn run_turn(
    runtime: &Runtime,
    server: &Postgres,
    contestant: &dyn Contestant,
    jobs: u32,
) -> Result<Rates, String> {
    let jobs = jobs.next_multiple_of(SUBMIT_BATCH);
    // The checkpoint prevents that a contestant pays for the pending writes of another.
    server.psql("postgres", "checkpoint");
    let url = server.create_database("bench");
    let times = run(&mut contestant.migrate(&url)).and_then(|()| {
        let submitted = submit(contestant, &url, jobs)?;
        Ok((submitted, runtime.block_on(process(contestant, &url, jobs))?))
    });
    // The dropped database prevents that its autovacuum runs in the next turn.
    let name = url.rsplit('/').next().unwrap_or_default();
    server.psql("postgres", &format!("drop database \"{name}\" with (force)"));
    let (submitted, processed) = times?;
    let rate = |time: Duration| f64::from(jobs) / time.as_secs_f64();
    Ok(Rates { submit: rate(submitted), process: rate(processed) })
}

fn submit(contestant: &dyn Contestant, url: &str, jobs: u32) -> Result<Duration, String> {
    let mut process = Process::ready(contestant.submit(url, jobs))?;
    let start = now();
    process.go()?;
    process.end()?;
    Ok(start.elapsed())
}

async fn process(contestant: &dyn Contestant, url: &str, jobs: u32) -> Result<Duration, String> {
    let mut database = Database::connect(url, contestant.unfinished()).await?;
    let left = database.left().await?;
    if left != i64::from(jobs) {
        return Err(format!("{left} jobs were submitted, not {jobs}"));
    }
    // The queue gets statistics, like a queue in production.
    database.analyze().await?;
    let last = database.last().await?;
    let mut workers: Vec<Process> =
        (0..WORKERS).map(|_| Process::ready(contestant.work(url))).collect::<Result<_, _>>()?;
    let start = now();
    for worker in &mut workers {
        worker.go()?;
    }
    while database.has(&last).await? || database.left().await? > 0 {
        if workers.iter_mut().any(Process::has_ended) {
            return Err("a worker process has ended".to_owned());
        }
        if start.elapsed() > PROCESS_TIMEOUT {
            return Err(format!(
                "{} of {jobs} jobs are left after {PROCESS_TIMEOUT:?}",
                database.left().await?
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(start.elapsed())
}

/// The unfinished jobs as the database shows them: its committed state is on disk.
struct Database {
    connection: PgConnection,
    unfinished: Unfinished,
}

impl Database {
    async fn connect(url: &str, unfinished: Unfinished) -> Result<Self, String> {
        let connection = PgConnection::connect(url).await.map_err(|error| error.to_string())?;
        Ok(Self { connection, unfinished })
    }

    async fn left(&mut self) -> Result<i64, String> {
        let Unfinished { table, condition, .. } = self.unfinished;
        let query = format!("select count(*) from {table} where {condition}");
        let answer = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection).await;
        answer.map_err(|error| error.to_string())
    }

    /// Returns the last submitted job, which is among the last to be completed.
    async fn last(&mut self) -> Result<String, String> {
        let Unfinished { table, id, .. } = self.unfinished;
        let query = format!("select {id}::text from {table} order by {id} desc limit 1");
        let answer = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection).await;
        answer.map_err(|error| error.to_string())
    }

    async fn has(&mut self, job: &str) -> Result<bool, String> {
        let Unfinished { table, id, condition } = self.unfinished;
        let query = format!("select exists (select from {table} where {id} = '{job}' and {condition})");
        let answer = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut self.connection).await;
        answer.map_err(|error| error.to_string())
    }

    async fn analyze(&mut self) -> Result<(), String> {
        let statement = format!("analyze {}", self.unfinished.table);
        let done = sqlx::query(AssertSqlSafe(statement)).execute(&mut self.connection).await;
        done.map(drop).map_err(|error| error.to_string())
    }
}
