//! Runs the schedule on a prepared stage.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdoff::client::Client;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::count::{count, is_drained};
use super::ending::Ending;
use super::plan::Plan;
use super::rivals::Rivals;
use super::service::Addresses;
use super::stage::Stage;
use super::storm::Storms;
use super::summary::{Seen, Sent, Summary};
use super::task::task;
use super::traffic::Traffic;
use super::victim::{Successor, suffer};
use crate::failure::Failure;

/// The drain timeout after the traffic ends, and the interval at which the demo checks for remaining work.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The end of a run.
pub(super) enum Ended {
    /// A signal ended the run.
    Early,
    /// The run is complete.
    Played(Box<Summary>),
}

/// The running participants. Dropping the value stops them.
struct Cast {
    /// The senders: tasks, signals and the operator's actions.
    traffic: JoinSet<()>,
    victim: JoinHandle<Option<Successor>>,
    rivals: Rivals,
    sent: Arc<Mutex<Sent>>,
    storms: Storms,
    stop: CancellationToken,
}

/// Runs until the plan ends or the user stops the demo.
pub(super) async fn play(stage: Stage, plan: Plan, seed: u64, ending: &mut Ending) -> Result<Ended, Failure> {
    let (mut cast, rest) = Cast::enter(stage, plan, seed).await?;
    let everything = async { while cast.traffic.join_next().await.is_some() {} };
    tokio::select! {
        () = everything => {}
        () = ending.wanted() => {
            leave(cast, rest, ending).await;
            return Ok(Ended::Early);
        }
    }
    tokio::select! {
        summary = finish(cast, rest, seed) => summary.map(|summary| Ended::Played(Box::new(summary))),
        () = ending.wanted() => Ok(Ended::Early),
    }
}

/// The parts of the stage that outlive the participants.
struct Rest {
    server: holdoff_server::Server,
    target: super::target::Target,
    locks: holdoff_lock::Locks,
}

impl Cast {
    async fn enter(stage: Stage, plan: Plan, seed: u64) -> Result<(Self, Rest), Failure> {
        let Stage { server, target, client, daemon, operator, locks, store, since, voice, .. } = stage;
        let (stop, sent) = (CancellationToken::new(), Arc::<Mutex<Sent>>::default());
        let rivals = Rivals::start(&store, seed).await.map_err(|error| Failure::Failed(error.to_string()))?;
        let storms = Storms::new(daemon, target.addresses.clone(), voice);
        let mut traffic = JoinSet::new();
        traffic.spawn(storms.clone().rage(since, plan.lasts));
        let submitting = Submitting {
            client: client.clone(),
            addresses: target.addresses.clone(),
            sent: Arc::clone(&sent),
        };
        traffic.spawn(submitting.run(seed, since, plan.lasts));
        traffic.spawn(operator.work(since, plan.lasts));
        let (url, stopping) = (server.url(), stop.clone());
        let victim = tokio::spawn(async move { suffer(&url, client, plan, (since, voice), stopping).await });
        let cast = Self { traffic, victim, rivals, sent, storms, stop };
        Ok((cast, Rest { server, target, locks }))
    }
}

/// Stops all participants. A second signal from the user skips the wait.
async fn leave(mut cast: Cast, rest: Rest, ending: &mut Ending) {
    cast.traffic.abort_all();
    cast.victim.abort();
    let stop = async {
        cast.rivals.stop().await;
        rest.server.shutdown().await;
    };
    tokio::select! {
        () = stop => {}
        () = ending.wanted() => {}
    }
}

/// Waits for the remaining work, stops everything, and counts.
async fn finish(cast: Cast, rest: Rest, seed: u64) -> Result<Summary, Failure> {
    let Cast { victim, rivals, sent, storms, stop, .. } = cast;
    stop.cancel();
    // The killed worker's steps are remaining work too, and the successor processes them.
    let successor = victim.await.unwrap_or_default();
    drain(rest.server.work()).await?;
    let grants = rivals.stop().await;
    let work = rest.server.work().clone();
    let last = async {
        if let Some(successor) = successor {
            successor.stop().await;
        }
    };
    // Stops both together, because the daemon's shutdown wakes a worker that waits for more steps.
    tokio::join!(last, rest.server.shutdown());
    let stored = count(&work, &rest.locks).await.map_err(Failure::Failed)?;
    let ledger = rest.target.ledger();
    let seen = Seen { totals: ledger.totals(), done: ledger.done() };
    drop(ledger);
    let sent = *sent.lock().unwrap_or_else(PoisonError::into_inner);
    let summary = Summary::of(seed, &sent, &storms.signals(), &grants, &seen, &stored);
    Ok(summary)
}

async fn drain(work: &holdoff_work::Work) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && !is_drained(work).await? {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// The sender of tasks.
struct Submitting {
    client: Client,
    addresses: Addresses,
    sent: Arc<Mutex<Sent>>,
}

impl Submitting {
    async fn run(self, seed: u64, since: Instant, lasts: Option<Duration>) {
        for due in Traffic::new(seed).take_while(|due| lasts.is_none_or(|lasts| due.at < lasts)) {
            tokio::time::sleep_until(since + due.at).await;
            let taken = self.client.submit(&task(&due, &self.addresses)).await;
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            match taken {
                Ok(_) => {
                    sent.tasks += 1;
                    sent.steps += due.wish.steps();
                }
                Err(_) => sent.unsure += 1,
            }
        }
    }
}
