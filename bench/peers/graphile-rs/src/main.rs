//! The Rust crate `graphile_worker` as a contestant of `cargo xtask bench work`.
//!
//! Usage: `peer-graphile-rs migrate|submit|work URL [JOBS] [BATCH]`; see `bench/src/work/contestant.rs` for
//! the protocol between the benchmark and a contestant.

use std::error::Error;
use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
    WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};

const SCHEMA: &str = "graphile_worker";
const CONNECTIONS: u32 = 10;

/// A job that does nothing.
#[derive(Deserialize, Serialize)]
struct Nothing {}

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        Ok::<(), String>(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["migrate", url] => Ok(WorkerUtils::new(pool(url).await?, SCHEMA).migrate().await?),
        ["submit", url, jobs, batch] => submit(url, jobs.parse()?, batch.parse()?).await,
        ["work", url] => work(url).await,
        _ => Err("usage: peer-graphile-rs migrate URL | submit URL JOBS BATCH | work URL".into()),
    }
}

async fn submit(url: &str, jobs: usize, batch: usize) -> Result<(), Box<dyn Error>> {
    let utils = WorkerUtils::new(pool(url).await?, SCHEMA);
    let job = RawJobSpec {
        identifier: Nothing::IDENTIFIER.to_owned(),
        payload: serde_json::json!({}),
        spec: JobSpec::default(),
    };
    let jobs = vec![job; jobs];
    wait_for_go()?;
    for batch in jobs.chunks(batch) {
        utils.add_raw_jobs(batch).await?;
    }
    Ok(())
}

/// Runs a worker with the settings of the crate's own throughput benchmark (`benches/perf_test.rs`).
async fn work(url: &str) -> Result<(), Box<dyn Error>> {
    let worker = WorkerOptions::default()
        .database(pool(url).await?)
        .schema(SCHEMA)
        .concurrency(500)
        .poll_interval(Duration::from_millis(5))
        .complete_job_batch_delay(Duration::from_millis(5))
        .local_queue(LocalQueueConfig::default().with_size(5000))
        .define_job::<Nothing>()
        .init()
        .await?;
    wait_for_go()?;
    Ok(worker.run().await?)
}

async fn pool(url: &str) -> sqlx::Result<PgPool> {
    PgPoolOptions::new().min_connections(CONNECTIONS).max_connections(CONNECTIONS).connect(url).await
}

/// Reports that the process is ready, and waits for the start signal.
fn wait_for_go() -> std::io::Result<()> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).map(drop)
}
