//! The workers: one in a separate process, which the demo kills while the worker holds steps, and its successor.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use holdoff::client::{Client, Error, PulledStep};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::output::ProgressLog;
use super::plan::{Plan, rounds};
use super::traffic::PHOTO;
use crate::error::CommandError;

#[derive(clap::Args, Debug)]
pub(crate) struct DemoWorkerArgs {
    /// URL of the daemon
    url: String,
}

/// The lease of a worker's steps. Without a heartbeat for this long, the worker loses them.
const LEASE: Duration = Duration::from_secs(3);

/// The duration of a photo in the worker to be killed, long enough for the kill to happen meanwhile.
const SLOW: Duration = Duration::from_secs(6);
const SLOW_CONCURRENCY: usize = 4;

const QUICK: Duration = Duration::from_millis(300);
const QUICK_CONCURRENCY: usize = 4;

/// The lines that the worker to be killed prints when it claims a step and when it completes one.
const CLAIMED: &str = "+";
const DONE: &str = "-";

/// Runs the worker to be killed. It exits when its parent closes its stdin.
pub(crate) fn run_worker(args: &DemoWorkerArgs) -> Result<ExitCode, CommandError> {
    let refused = |error: Error| CommandError::failed(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let working = async {
        let worker = Client::new(&args.url).map_err(refused)?.worker("photos-1").operation(PHOTO);
        let handle = |step: PulledStep| async move {
            println!("{CLAIMED}");
            tokio::time::sleep(SLOW).await;
            println!("{DONE}");
            Ok(resized(&step))
        };
        let pulling = worker.lease(LEASE).concurrency(SLOW_CONCURRENCY).run(handle, std::future::pending());
        let (mut parent, mut nothing) = (tokio::io::stdin(), [0; 1]);
        tokio::select! {
            ended = pulling => ended.map_err(refused),
            _ = parent.read(&mut nothing) => Ok(()),
        }
    };
    runtime.block_on(working)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a worker in this process until `stop` completes.
async fn pull(client: &Client, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let handle = |step: PulledStep| async move {
        tokio::time::sleep(QUICK).await;
        Ok(resized(&step))
    };
    let worker = client.worker("photos-2").operation(PHOTO).lease(LEASE).concurrency(QUICK_CONCURRENCY);
    worker.run(handle, stop).await
}

fn resized(step: &PulledStep) -> serde_json::Value {
    json!({ "resized": step.payload.get("photo"), "attempt": step.attempt })
}

/// The time a worker gets to claim a step. After that the demo kills it without one.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a worker in each round and kills it. After the first kill, a successor takes over. When `stop` is
/// cancelled, the current round finishes, and the successor keeps running until it is stopped itself.
pub(super) async fn run_killed_workers(
    url: &str,
    client: Client,
    plan: Plan,
    clock: (Instant, ProgressLog),
    stop: CancellationToken,
) -> Option<Successor> {
    let (since, progress) = clock;
    let mut successor = None;
    for begin in rounds() {
        if stop.run_until_cancelled(tokio::time::sleep_until(since + begin)).await.is_none() {
            break;
        }
        match run_until_killed(url, since + begin + plan.kill_at).await {
            Ok(held) => {
                let photos = if held == 1 { "photo" } else { "photos" };
                progress.print(&format!(
                    "killed a worker that held {held} {photos}; another worker takes them over"
                ));
            }
            Err(error) => progress.print(&format!("cannot start a worker: {error}")),
        }
        successor.get_or_insert_with(|| Successor::start(client.clone()));
    }
    successor
}

/// Runs a worker until it is killed. Returns the number of steps that it held at that time.
async fn run_until_killed(url: &str, until: Instant) -> std::io::Result<usize> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["demo-worker", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let held =
        tokio::time::timeout_at(until + CLAIM_TIMEOUT, watch(&mut child, until)).await.unwrap_or(Ok(0));
    // Sends SIGKILL, so that the worker cannot release its steps.
    child.kill().await?;
    held
}

/// Waits until the time of the kill has come and the worker holds a step.
async fn watch(child: &mut Child, until: Instant) -> std::io::Result<usize> {
    let Some(out) = child.stdout.take() else { return Ok(0) };
    let mut lines = BufReader::new(out).lines();
    let mut held = 0_usize;
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            () = tokio::time::sleep_until(until), if held > 0 => return Ok(held),
        };
        match line.as_deref() {
            Some(CLAIMED) => held += 1,
            Some(DONE) => held = held.saturating_sub(1),
            Some(_) => {}
            None => return Ok(held),
        }
    }
}

/// The worker that takes over.
pub(super) struct Successor {
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl Successor {
    fn start(client: Client) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            // A daemon that refuses the pull is shutting down, and the worker ends with it.
            let _ = pull(&client, stopped.cancelled()).await;
        });
        Self { stop, running }
    }

    /// Finishes the claimed steps and stops.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let _ = self.running.await;
    }
}
