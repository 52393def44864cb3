//! The Rust crate `riverqueue` as a contestant of `cargo xtask bench work`.
//!
//! Usage: `peer-river-rs migrate|submit|work URL [JOBS] [BATCH]`; see `bench/src/work/contestant.rs` for the
//! protocol between the benchmark and a contestant.

use std::error::Error;
use std::time::Duration;

use riverqueue::migrate::PostgresMigrator;
use riverqueue::{BoxError, Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};

const CONNECTIONS: u32 = 10;

/// A job that does nothing.
#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "nothing")]
struct Nothing {}

async fn do_nothing(_: WorkContext, _: Job<Nothing>) -> Result<WorkOutcome, BoxError> {
    Ok(WorkOutcome::Complete)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["migrate", url] => Ok(PostgresMigrator::new(pool(url).await?).migrate_up().await.map(drop)?),
        ["submit", url, jobs, batch] => submit(url, jobs.parse()?, batch.parse()?).await,
        ["work", url] => work(url).await,
        _ => Err("usage: peer-river-rs migrate URL | submit URL JOBS BATCH | work URL".into()),
    }
}

async fn submit(url: &str, jobs: usize, batch: usize) -> Result<(), Box<dyn Error>> {
    let client = Client::builder(pool(url).await?).build()?;
    let jobs = vec![Nothing {}; jobs];
    wait_for_go()?;
    for batch in jobs.chunks(batch) {
        client.insert_many(batch.iter().cloned()).await?;
    }
    Ok(())
}

/// Runs a client with the settings of River's own benchmark (`riverqueue bench`).
async fn work(url: &str) -> Result<(), Box<dyn Error>> {
    let mut workers = Workers::new();
    workers.add_fn(do_nothing)?;
    let queue = QueueConfig::new(2000)
        .with_fetch_cooldown(Duration::from_millis(2))
        .with_fetch_poll_interval(Duration::from_millis(20));
    let client = Client::builder(pool(url).await?).workers(workers).queue("default", queue).build()?;
    wait_for_go()?;
    Ok(client.start()?.wait().await?)
}

async fn pool(url: &str) -> sqlx::Result<PgPool> {
    PgPoolOptions::new().min_connections(CONNECTIONS).max_connections(CONNECTIONS).connect(url).await
}

/// Reports that the process is ready, and waits for the start signal.
fn wait_for_go() -> std::io::Result<()> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).map(drop)
}
