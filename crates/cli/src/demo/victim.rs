//! A worker in a process of its own, which is killed while it has steps.

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

/// How long a worker may take to get a step; then it is killed without.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a worker in every round and kills it; from the first kill on, another one is there to take over. When `stop`
/// comes, a round that has begun is finished, and the other worker goes on until it is stopped itself.
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

/// Answers how many steps it had when it was killed.
async fn live_and_die(url: &str, until: Instant) -> std::io::Result<usize> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["demo-worker", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let held = tokio::time::timeout_at(until + PATIENCE, watch(&mut child, until)).await.unwrap_or(Ok(0));
    // SIGKILL: it has no chance to say goodbye.
    child.kill().await?;
    held
}

/// Waits until it is time and the worker has something.
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
            // A daemon that refuses is on its way out, and so is this.
            let _ = pull(&client, stopped.cancelled()).await;
        });
        Self { stop, running }
    }

    /// Stops when what it has is done.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let _ = self.running.await;
    }
}
