//! holdoff as a contestant. Its processes are this same program in another role.

use std::process::{Command, ExitCode};
use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_work::{Context, Fault, Task, Work, Worker};

use super::contestant::{Contestant, Process, Unfinished, wait_for_go};
use super::{SUBMIT_BATCH, WORKERS};

/// The number of steps that a worker claims, and reports, in one batch.
pub(super) const BATCH: u32 = 1000;

/// The argument that makes this program act as a contestant.
const PART: &str = "as-contestant";

pub(super) struct Holdoff;

impl Holdoff {
    fn command(arguments: &[&str]) -> Command {
        let mut program = Command::new(std::env::current_exe().unwrap_or_default());
        program.arg(PART).args(arguments);
        program
    }
}

impl Contestant for Holdoff {
    fn name(&self) -> String {
        "holdoff".to_owned()
    }

    /// There is nothing to install.
    fn install(&self) -> Result<(), String> {
        Ok(())
    }

    fn migrate(&self, url: &str) -> Command {
        Self::command(&["migrate", url])
    }

    fn submit(&self, url: &str, jobs: u32) -> Command {
        Self::command(&["submit", url, &jobs.to_string()])
    }

    fn work(&self, url: &str) -> Command {
        Self::command(&["work", url])
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished { table: "holdoff.steps", id: "task", condition: "true" }
    }
}

/// Plays a role, if this process was started for that.
pub(crate) fn play(arguments: &[String]) -> Option<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let played = match words.as_slice() {
        [PART, "migrate", url] => migrate(url),
        [PART, "submit", url, jobs] => submit(url, jobs.parse().unwrap_or(0)),
        [PART, "work", url] => work(url),
        _ => return None,
    };
    let failed = |why: String| {
        eprintln!("{why}");
        ExitCode::FAILURE
    };
    Some(played.map_or_else(failed, |()| ExitCode::SUCCESS))
}

/// The number of concurrent steps: two batches, so that the worker claims one while it reports the other.
const CONCURRENCY: usize = 2 * BATCH as usize;

fn migrate(url: &str) -> Result<(), String> {
    play_async(async { open(url).await.map(drop) })
}

fn submit(url: &str, jobs: u32) -> Result<(), String> {
    play_async(async {
        let work = open(url).await?;
        wait_for_go()?;
        submit_all(&work, jobs, Duration::ZERO).await
    })
}

fn work(url: &str) -> Result<(), String> {
    play_async(async {
        let work = open(url).await?;
        wait_for_go()?;
        let _worker = start(&work, CONCURRENCY).await?;
        std::future::pending().await
    })
}

fn play_async(part: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(part)
}

/// Opens a store with the default policies.
pub(crate) async fn open(url: &str) -> Result<Work, String> {
    Work::open(url, PolicySet::default()).await.map_err(|error| error.to_string())
}

/// Submits steps that do nothing, due after this delay.
pub(crate) async fn submit_all(work: &Work, jobs: u32, delay: Duration) -> Result<(), String> {
    let mut left = jobs;
    while left > 0 {
        let batch = left.min(SUBMIT_BATCH);
        let tasks = (0..batch).map(|_| Task::new("nothing").delay(delay)).collect();
        work.submit_all(tasks).await.map_err(|error| error.to_string())?;
        left -= batch;
    }
    Ok(())
}

/// Starts processes that wait for the start signal and then process the steps at this URL.
pub(crate) fn workers(url: &str) -> Result<Vec<Process>, String> {
    (0..WORKERS).map(|_| Process::ready(Holdoff.work(url))).collect()
}

/// Starts a worker whose steps do nothing.
pub(crate) async fn start(work: &Work, concurrency: usize) -> Result<Worker, String> {
    let nothing = |_: Context, (): ()| async { Ok::<_, Fault>(()) };
    let worker = work.worker().handle("nothing", nothing).concurrency(concurrency);
    worker.start().await.map_err(|error| error.to_string())
}
