//! A worker in a separate process, which the demo kills while the worker holds steps.

use std::process::Stdio;
use std::time::Duration;

use holdoff::client::Client;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::plan::{Plan, rounds};
use super::voice::Voice;
use super::worker::{DONE, TAKEN, pull};

/// The time a worker gets to claim a step. After that the demo kills it without one.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a worker in each round and kills it. After the first kill, a successor takes over. When `stop` is
/// cancelled, the current round finishes, and the successor keeps running until it is stopped itself.
pub(super) async fn suffer(
    url: &str,
    client: Client,
    plan: Plan,
    clock: (Instant, Voice),
    stop: CancellationToken,
) -> Option<Successor> {
    let (since, voice) = clock;
    let mut successor = None;
    for begin in rounds() {
        if stop.run_until_cancelled(tokio::time::sleep_until(since + begin)).await.is_none() {
            break;
        }
        match live_and_die(url, since + begin + plan.kill_at).await {
            Ok(held) => {
                let photos = if held == 1 { "photo" } else { "photos" };
                voice.say(&format!("a worker was killed over {held} {photos}; another will have them soon"));
            }
            Err(error) => voice.say(&format!("no worker could be started: {error}")),
        }
        successor.get_or_insert_with(|| Successor::start(client.clone()));
    }
    successor
}

/// Runs a worker until it is killed. Returns the number of steps that it held at that time.
async fn live_and_die(url: &str, until: Instant) -> std::io::Result<usize> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["demo-worker", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let held = tokio::time::timeout_at(until + PATIENCE, watch(&mut child, until)).await.unwrap_or(Ok(0));
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
            Some(TAKEN) => held += 1,
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
