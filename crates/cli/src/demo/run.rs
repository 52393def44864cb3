//! Runs the plan on a prepared environment, then counts the content of the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use holdoff::client::Client;
use holdoff_lock::Locks;
use holdoff_work::{AttemptOutcome, PageRequest, StepFilter, StepState, TaskRecord, Work};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::contenders::{Contenders, DEPLOY};
use super::plan::Plan;
use super::setup::Setup;
use super::storm::{ALERT, StormSender};
use super::summary::{AttemptCounts, StoreContents, SubmittedTasks, Summary, TargetRecord};
use super::traffic::{Addresses, Traffic, task};
use super::workers::{Successor, run_killed_workers};
use crate::error::CommandError;
use crate::signals::StopSignals;

/// The drain timeout after the traffic ends, and the interval at which the demo checks for remaining work.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The end of a run.
pub(super) enum RunOutcome {
    /// A signal ended the run.
    Interrupted,
    /// The run is complete.
    Completed(Box<Summary>),
}

/// The running participants. Dropping the value stops them.
struct Participants {
    /// The senders: tasks, signals and the operator's actions.
    traffic: JoinSet<()>,
    killed_workers: JoinHandle<Option<Successor>>,
    contenders: Contenders,
    sent: Arc<Mutex<SubmittedTasks>>,
    storms: StormSender,
    stop: CancellationToken,
}

/// Runs until the plan ends or the user stops the demo.
pub(super) async fn run_plan(
    setup: Setup,
    plan: Plan,
    seed: u64,
    signals: &mut StopSignals,
) -> Result<RunOutcome, CommandError> {
    let (mut participants, services) = Participants::start(setup, plan, seed).await?;
    let everything = async { while participants.traffic.join_next().await.is_some() {} };
    tokio::select! {
        () = everything => {}
        _ = signals.next() => {
            stop(participants, services, signals).await;
            return Ok(RunOutcome::Interrupted);
        }
    }
    tokio::select! {
        summary = finish(participants, services, seed) => summary.map(|summary| RunOutcome::Completed(Box::new(summary))),
        _ = signals.next() => Ok(RunOutcome::Interrupted),
    }
}

/// The parts of the setup that outlive the participants.
struct Services {
    server: holdoff_server::Server,
    target: super::target::Target,
    locks: Locks,
}

impl Participants {
    async fn start(setup: Setup, plan: Plan, seed: u64) -> Result<(Self, Services), CommandError> {
        let Setup { server, target, client, daemon, operator, locks, store, since, progress, .. } = setup;
        let (stop, sent) = (CancellationToken::new(), Arc::<Mutex<SubmittedTasks>>::default());
        let contenders = Contenders::start(&store, seed).await?;
        let storms = StormSender::new(daemon, target.addresses.clone(), progress);
        let mut traffic = JoinSet::new();
        traffic.spawn(storms.clone().run(since, plan.lasts));
        let sender = TaskSender {
            client: client.clone(),
            addresses: target.addresses.clone(),
            sent: Arc::clone(&sent),
        };
        traffic.spawn(sender.run(seed, since, plan.lasts));
        traffic.spawn(operator.work(since, plan.lasts));
        let (url, stopping) = (server.url(), stop.clone());
        let killed_workers =
            tokio::spawn(
                async move { run_killed_workers(&url, client, plan, (since, progress), stopping).await },
            );
        let participants = Self { traffic, killed_workers, contenders, sent, storms, stop };
        Ok((participants, Services { server, target, locks }))
    }
}

/// Stops all participants. A second signal from the user skips the wait.
async fn stop(mut participants: Participants, services: Services, signals: &mut StopSignals) {
    participants.traffic.abort_all();
    participants.killed_workers.abort();
    let stopping = async {
        participants.contenders.stop().await;
        services.server.shutdown().await;
    };
    tokio::select! {
        () = stopping => {}
        _ = signals.next() => {}
    }
}

/// Waits for the remaining work, stops everything, and counts.
async fn finish(participants: Participants, services: Services, seed: u64) -> Result<Summary, CommandError> {
    let Participants { killed_workers, contenders, sent, storms, stop, .. } = participants;
    stop.cancel();
    // The killed worker's steps are remaining work too, and the successor processes them.
    let successor = killed_workers.await.unwrap_or_default();
    drain(services.server.work()).await?;
    let grants = contenders.stop().await;
    let work = services.server.work().clone();
    let last = async {
        if let Some(successor) = successor {
            successor.stop().await;
        }
    };
    // Stops both together, because the daemon's shutdown wakes a worker that waits for more steps.
    tokio::join!(last, services.server.shutdown());
    let stored = count(&work, &services.locks).await.map_err(CommandError::Failed)?;
    let request_log = services.target.request_log();
    let seen = TargetRecord { totals: request_log.totals(), done: request_log.done() };
    drop(request_log);
    let sent = *sent.lock();
    let summary = Summary::of(seed, &sent, &storms.signals(), &grants, &seen, &stored);
    Ok(summary)
}

async fn drain(work: &Work) -> Result<(), CommandError> {
    let until = Instant::now() + DRAIN_TIMEOUT;
    while Instant::now() < until && !is_drained(work).await? {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// The sender of tasks.
struct TaskSender {
    client: Client,
    addresses: Addresses,
    sent: Arc<Mutex<SubmittedTasks>>,
}

impl TaskSender {
    async fn run(self, seed: u64, since: Instant, lasts: Option<Duration>) {
        for due in Traffic::new(seed).take_while(|due| lasts.is_none_or(|lasts| due.at < lasts)) {
            tokio::time::sleep_until(since + due.at).await;
            let submitted = self.client.submit(&task(&due, &self.addresses)).await;
            let mut sent = self.sent.lock();
            match submitted {
                Ok(_) => {
                    sent.tasks += 1;
                    sent.steps += due.kind.steps();
                }
                Err(_) => sent.unsure += 1,
            }
        }
    }
}

/// Counts all tasks, steps and attempts, and reads the last fencing token of the contended lock.
async fn count(work: &Work, locks: &Locks) -> Result<StoreContents, String> {
    let message = |error: holdoff_work::Error| error.to_string();
    let queues = work.stats().await.map_err(message)?;
    let paused: HashSet<QueueKey> = queues
        .into_iter()
        .filter(|queue| queue.paused)
        .map(|queue| (queue.namespace, queue.queue, queue.operation))
        .collect();
    let (mut stored, mut before) = (StoreContents::default(), None);
    loop {
        let page = work
            .tasks(&StepFilter::default(), None, before, PageRequest::MAX_LIMIT)
            .await
            .map_err(message)?;
        for task in &page.tasks {
            let Some(task) = work.task(task.id).await.map_err(message)? else { continue };
            stored.add(&task, &paused);
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let lock = locks.inspect(DEPLOY).await.map_err(|error| error.to_string())?;
    stored.token = lock.map_or(0, |lock| lock.token.get());
    Ok(stored)
}

/// A namespace, a queue and an operation.
type QueueKey = (String, String, String);

impl StoreContents {
    fn add(&mut self, task: &TaskRecord, paused: &HashSet<QueueKey>) {
        self.tasks += 1;
        self.alerts += u64::from(task.steps.iter().any(|step| step.operation == ALERT));
        for step in &task.steps {
            if step.destination.is_some() {
                self.requests.insert(step.id.to_string(), step.state);
            }
            let queue = (step.namespace.clone(), step.queue.clone(), step.operation.clone());
            if step.state == StepState::Ready && paused.contains(&queue) {
                self.steps.unfinished.paused += 1;
            } else {
                self.steps.count(step.state);
            }
            self.attempts.made += u64::from(step.state == StepState::Succeeded);
        }
        task.attempts.iter().for_each(|attempt| self.attempts.count(attempt.outcome));
    }
}

impl AttemptCounts {
    /// Counts an attempt that did not succeed. A step that was put back before it ran is not an attempt.
    const fn count(&mut self, outcome: AttemptOutcome) {
        match outcome {
            AttemptOutcome::Retried => self.retried += 1,
            AttemptOutcome::Rescued => self.rescued += 1,
            AttemptOutcome::Failed | AttemptOutcome::Conflicted => {}
            _ => return,
        }
        self.made += 1;
    }
}

/// Returns whether every step is finished that can finish without an operator.
async fn is_drained(work: &Work) -> Result<bool, holdoff_work::Error> {
    let is_idle = |queue: &holdoff_work::QueueStats| {
        queue.running == 0 && (queue.paused || queue.due + queue.waiting == 0)
    };
    Ok(work.stats().await?.iter().all(is_idle))
}
