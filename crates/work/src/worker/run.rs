//! Claims steps for free slots, runs them, and reports them.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use holdoff_policy::{Attempt, Class, Failure, SoFar, format_duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::Instrument;

use super::Shared;
use super::handler::Completion;
use super::lease::{LeaseSlot, StepLease};
use crate::claimed_step::{ClaimedStep, panicked};
use crate::names::KnownLane;
use crate::store::{Exit, Report, RequeueReason, Result};
use crate::{Context, Fault, Kind, clock};

/// The maximum number of steps in one claim, and of reports in one write.
const BATCH: usize = 1000;

/// The time that a fetch waits for more free slots when there are few. A whole batch costs hardly more than one step.
const LINGER: Duration = Duration::from_millis(2);

/// A run that has ended, with its slot. The slot becomes free when the report is durable.
pub(super) struct FinishedRun {
    lease: Arc<StepLease>,
    slot: LeaseSlot,
    /// `None` if there is nothing to report.
    report: Option<Report>,
    lane: Option<Arc<KnownLane>>,
    permit: OwnedSemaphorePermit,
}

/// Claims steps until the worker stops. Finished runs go to `reports`. The channel has room for every slot, so that a
/// run never waits to send its report.
pub(super) async fn fetch(shared: Arc<Shared>, reports: mpsc::Sender<FinishedRun>) {
    let _ended = shared.claims_ended.clone().drop_guard();
    let slots = Arc::new(Semaphore::new(shared.concurrency));
    let mut wakes = shared.work.shared.store.wakes();
    let mut failures = 0_u32;
    while let Some(mut free) = free_slots(&shared, &slots).await {
        wakes.mark_unchanged();
        let looked_at = clock::now();
        match claim(&shared, &mut free, &reports).await {
            // Other lanes may have more due steps.
            Ok(claimed) if claimed > 0 => failures = 0,
            Ok(_) => {
                failures = 0;
                drop(free);
                tokio::select! {
                    _ = wakes.changed() => {}
                    () = shared.work.shared.due.next(looked_at, shared.work.shared.settings.poll) => {}
                    () = shared.stopping.cancelled() => return,
                }
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%error, failures, "failed to claim steps");
                drop(free);
                let so_far = SoFar { attempt: Attempt::new(failures), ..SoFar::default() };
                let policy = &shared.work.shared.report_policy;
                let decision = policy.decide(&so_far, &Failure::transient(), clock::roll());
                tokio::select! {
                    () = tokio::time::sleep(decision.delay().unwrap_or(LINGER)) => {}
                    () = shared.stopping.cancelled() => return,
                }
            }
        }
    }
}

/// Waits for a free slot and returns all free slots, at most `BATCH`. Returns `None` when the worker stops.
async fn free_slots(shared: &Shared, slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let mut free = tokio::select! {
        first = Arc::clone(slots).acquire_owned() => first.ok()?,
        () = shared.stopping.cancelled() => return None,
    };
    if slots.available_permits() < shared.concurrency.min(BATCH) / 4 {
        tokio::time::sleep(LINGER).await;
    }
    if shared.stopping.is_cancelled() {
        return None;
    }
    let more = u32::try_from(slots.available_permits().min(BATCH - 1)).unwrap_or(0);
    if let Ok(more) = Arc::clone(slots).try_acquire_many_owned(more) {
        free.merge(more);
    }
    Some(free)
}

/// Claims steps for the free slots, and starts them. Returns their number.
async fn claim(
    shared: &Arc<Shared>,
    free: &mut OwnedSemaphorePermit,
    reports: &mpsc::Sender<FinishedRun>,
) -> Result<usize> {
    let limit = i64::try_from(free.num_permits()).unwrap_or(i64::MAX);
    let lease = shared.work.shared.settings.lease;
    let (selection, worker, notifier) = (&shared.selection, shared.registration.id, &shared.notifier);
    let steps = shared.work.claim_steps(selection, worker, limit, lease, notifier).await?;
    let count = steps.len();
    for step in steps {
        let Some(permit) = free.split(1) else { break };
        start(shared, step, permit, reports.clone());
    }
    Ok(count)
}

/// Starts a claimed step.
fn start(
    shared: &Arc<Shared>,
    mut step: ClaimedStep,
    permit: OwnedSemaphorePermit,
    reports: mpsc::Sender<FinishedRun>,
) {
    let Some(known) = step.lane.clone() else { return };
    let lease = StepLease::new(step.row.step, step.row.lease, step.requested);
    let slot = shared.leases.insert(Arc::clone(&lease));
    let context = Context {
        step: step.row.step,
        lane: Arc::clone(&known.lane),
        attempt: step.attempt(),
        token: step.token(),
        has_children: step.row.has_children,
        since: step.since,
        inputs: step.inputs.clone(),
        trace: step.row.trace.as_deref().map(Arc::from),
        lease: Arc::clone(&lease),
    };
    let span = tracing::debug_span!(
        "step",
        step = %step.row.step,
        operation = %known.lane.operation,
        attempt = context.attempt,
        trace = context.trace().unwrap_or_default()
    );
    let shared_by_run = Arc::clone(shared);
    let running = async move {
        let shared = shared_by_run;
        let exit = run(&shared, &step, context).await;
        let report = exit.map(|exit| {
            let mut report = step.report(exit);
            // A renewal moves the row and makes `ctid_hint` invalid, and a renewal in progress locks rows in another
            // order. Renewals begin at a third of the lease.
            let is_young = report.took < shared.work.shared.settings.lease / 4;
            report.ctid_hint = step.row.ctid_hint.take().filter(|_| is_young);
            report
        });
        // Sending fails only if the whole worker is gone; then the lease expires.
        let _ = reports.send(FinishedRun { lease, slot, report, lane: Some(known), permit }).await;
    };
    shared.running.spawn(running.instrument(span));
}

/// Runs a step to its end. Returns `None` if there is nothing to report.
///
/// There is one such future for every running step, and most steps succeed on the first poll. The futures of the
/// other cases are boxed, so that this one stays small.
async fn run(shared: &Arc<Shared>, step: &ClaimedStep, context: Context) -> Option<Exit> {
    let lease = Arc::clone(&context.lease);
    let mut handled = handle(shared, step, context);
    let first = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut handled).poll(cx))).await;
    let ended = match first {
        Poll::Ready(ended) => ended,
        Poll::Pending => match Box::pin(until_stopped(shared, step, &lease, handled)).await {
            ControlFlow::Continue(ended) => ended,
            ControlFlow::Break(exit) => return exit,
        },
    };
    let fault = match ended {
        Ok(Completion(output)) => {
            let limit = shared.work.shared.settings.max_output;
            return output.map(|output| Exit::Succeeded(output.within(limit)));
        }
        // A handler that returns because of cancellation is not counted as a failure.
        Err(_) if lease.lost.is_cancelled() => return None,
        Err(fault) => fault,
    };
    Some(Box::pin(judge(shared, step, &fault)).await)
}

/// Polls a handler until it ends or must stop.
async fn until_stopped(
    shared: &Shared,
    step: &ClaimedStep,
    lease: &StepLease,
    handled: Guarded<'_>,
) -> ControlFlow<Option<Exit>, std::result::Result<Completion, Fault>> {
    let limit = shared.timeouts.get(step.operation()).copied();
    tokio::select! {
        // A handler that waits for the cancellation sees it before it is dropped.
        biased;
        handled = handled => ControlFlow::Continue(handled),
        // Another worker holds the step, or will; the store would reject a report.
        () = lease.lost.cancelled() => ControlFlow::Break(None),
        limit = passed(limit) => {
            lease.lost.cancel();
            let message = format!("the handler did not end within {}", format_duration(limit));
            ControlFlow::Break(Some(judge(shared, step, &Fault::new(Class::Timeout, message)).await))
        }
        () = shared.stopped.cancelled() => {
            lease.lost.cancel();
            let message = "its worker was shut down".to_owned();
            let delay = shared.work.shared.settings.requeue.shutdown;
            ControlFlow::Break(Some(Exit::Requeued { delay, reason: RequeueReason::Shutdown, message }))
        }
    }
}

/// Waits until the limit has passed, and returns it. Without a limit it never returns.
async fn passed(limit: Option<Duration>) -> Duration {
    let Some(limit) = limit else { return std::future::pending().await };
    tokio::time::sleep(limit).await;
    limit
}

/// Returns the exit of a step that did not succeed, by its policy. If the policy demands a fresh credential, the worker
/// refreshes it first; a refresh that fails is judged in place of the fault.
async fn judge(shared: &Shared, step: &ClaimedStep, fault: &Fault) -> Exit {
    let exit = exit_of(shared, step, fault).await;
    let (true, Some(generation)) = (exit.is_refreshed(), fault.credential()) else { return exit };
    match refresh(shared, step, generation).await {
        Ok(()) => exit,
        Err(fault) => {
            let mut refreshed = step.clone();
            refreshed.row.refreshed = true;
            exit_of(shared, &refreshed, &fault).await
        }
    }
}

async fn exit_of(shared: &Shared, step: &ClaimedStep, fault: &Fault) -> Exit {
    match shared.work.judge(step, fault).await {
        Ok(exit) => exit,
        Err(error) => {
            // Without the policy there is no decision. The step returns to its queue, and another node may be able to
            // read the policy.
            tracing::error!(%error, "failed to read the policy of a step; the step is requeued");
            let delay = shared.work.shared.settings.requeue.rescue;
            Exit::Requeued { delay, reason: RequeueReason::Busy, message: error.to_string() }
        }
    }
}

async fn refresh(shared: &Shared, step: &ClaimedStep, generation: u64) -> std::result::Result<(), Fault> {
    #[cfg(feature = "http")]
    if let Some(http) = &shared.http {
        return http.refresh(&step.row.payload, generation).await;
    }
    let _ = (shared, step, generation);
    Err(Fault::transient("this worker cannot refresh the credential"))
}

fn handle<'a>(shared: &'a Shared, step: &'a ClaimedStep, context: Context) -> Guarded<'a> {
    let wait = |why| Guarded(Box::pin(std::future::ready(Err(Fault::snooze(Duration::from_secs(1), why)))));
    let payload = &step.row.payload;
    match context.lane.kind {
        #[cfg(feature = "http")]
        Kind::Http => match &shared.http {
            Some(http) => Guarded(Box::pin(async move {
                http.respond(&context, payload).await.map(|output| Completion(Some(output)))
            })),
            None => wait("this worker does not send HTTP requests"),
        },
        _ => match shared.handlers.get(&context.lane.operation) {
            Some(handler) => {
                let payload = payload.clone();
                let running = catch_unwind(AssertUnwindSafe(|| handler.run(context, payload)));
                Guarded(running.unwrap_or_else(|_| Box::pin(std::future::ready(Err(panicked())))))
            }
            None => wait("this worker has no handler for the operation"),
        },
    }
}

/// A running handler. A panic becomes a fault, and the slot becomes free again.
struct Guarded<'a>(Pin<Box<dyn Future<Output = std::result::Result<Completion, Fault>> + Send + 'a>>);

impl Future for Guarded<'_> {
    type Output = std::result::Result<Completion, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        // The handler is not polled again after a panic, so no inconsistent state can be observed.
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(panicked())))
    }
}

/// Writes reports until all senders are gone, in batches that grow with the load.
pub(super) async fn finish(shared: Arc<Shared>, mut finished: mpsc::Receiver<FinishedRun>) {
    let mut batch = Vec::with_capacity(BATCH);
    while finished.recv_many(&mut batch, BATCH).await > 0 {
        flush(&shared, &mut batch).await;
    }
}

/// Writes reports. The policy repeats a write while that may help. If the store rejects a batch for good, one report may
/// be the cause, so each half is written alone.
async fn write(shared: &Shared, reports: &[Report], lanes: &[Option<Arc<KnownLane>>]) {
    let Some(first) = reports.first() else { return };
    let policy = &shared.work.shared.report_policy;
    let Err(error) = shared.work.write_reports(reports, lanes, &shared.notifier, policy).await else {
        return;
    };
    if reports.len() > 1 {
        let half = reports.len() / 2;
        let ((first, second), (first_lanes, second_lanes)) = (reports.split_at(half), lanes.split_at(half));
        Box::pin(write(shared, first, first_lanes)).await;
        Box::pin(write(shared, second, second_lanes)).await;
    } else {
        tracing::error!(%error, step = %first.step, "failed to write a report; the step is rescued when its lease expires");
    }
}

async fn flush(shared: &Shared, batch: &mut Vec<FinishedRun>) {
    let mut reports = Vec::with_capacity(batch.len());
    let mut lanes = Vec::with_capacity(batch.len());
    let mut slots = Vec::with_capacity(batch.len());
    let mut permits: Option<OwnedSemaphorePermit> = None;
    for FinishedRun { lease, slot, report, lane, permit } in batch.drain(..) {
        lease.set_ending();
        slots.push(slot);
        match &mut permits {
            Some(permits) => permits.merge(permit),
            None => permits = Some(permit),
        }
        if let Some(report) = report {
            reports.push(report);
            lanes.push(lane);
        }
    }
    write(shared, &reports, &lanes).await;
    shared.leases.remove(slots.into_iter());
    drop(permits);
}
