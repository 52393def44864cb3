//! Runs one step.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use super::Shared;
use super::finish::{Done, Reports};
use super::handler::Ran;
use super::hold::Hold;
use crate::names::KnownLane;
use crate::patience::patiently;
use crate::store::{Claimed, Exit, Reason, Report};
use crate::verdict::{self, Verdict, verdict};
use crate::{Context, Fault, Kind, Payload, clock};

/// Starts a claimed step; its report goes to `finish`, with its slot.
pub(super) fn start(
    shared: &Arc<Shared>,
    claimed: Claimed,
    lane: Arc<KnownLane>,
    inputs: Option<Arc<BTreeMap<String, Payload>>>,
    since: Duration,
    place: OwnedSemaphorePermit,
    reports: Reports,
) {
    let hold = Hold::new(claimed.step, claimed.lease, since);
    let slot = shared.held.insert(Arc::clone(&hold));
    let context = Context {
        step: claimed.step,
        lane: Arc::clone(&lane.lane),
        attempt: u32::try_from(claimed.failures).unwrap_or(0).saturating_add(1),
        token: u64::try_from(claimed.lease).unwrap_or(0),
        has_children: claimed.has_children,
        since,
        inputs,
        trace: claimed.trace.as_deref().map(Arc::from),
        hold: Arc::clone(&hold),
    };
    let span = tracing::debug_span!(
        "step",
        step = %claimed.step,
        operation = %lane.lane.operation,
        attempt = context.attempt,
        trace = context.trace().unwrap_or_default()
    );
    let shared_by_run = Arc::clone(shared);
    let running = async move {
        let shared = shared_by_run;
        let mut claimed = claimed;
        let exit = run(&shared, &claimed, context).await;
        let took = clock::now().saturating_sub(since);
        // A renewal moves the row and makes `whereabouts` invalid, and a renewal in progress locks rows in another
        // order. Renewals begin at a third of the lease.
        let is_young = took < shared.work.shared.settings.lease / 4;
        let report = exit.map(|exit| Report {
            step: claimed.step,
            lease: claimed.lease,
            has_children: claimed.has_children,
            took,
            whereabouts: claimed.whereabouts.take().filter(|_| is_young),
            attempt: claimed.failures.saturating_add(1),
            destination: claimed.destination.take(),
            exit,
        });
        // Sending fails only if the whole worker is gone; then the lease expires.
        let _ = reports.send(Done { hold, slot, report, lane, place }).await;
    };
    shared.running.spawn(running.instrument(span));
}

/// Runs a step to its end. Returns `None` if there is nothing to report.
///
/// There is one such future for every running step, and most steps succeed on the first poll. The futures of the
/// other cases are boxed, so that this one stays small.
async fn run(shared: &Arc<Shared>, claimed: &Claimed, context: Context) -> Option<Exit> {
    let (hold, since) = (Arc::clone(&context.hold), context.since);
    let mut handled = handle(shared, claimed, context);
    let first = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut handled).poll(cx))).await;
    let ended = match first {
        Poll::Ready(ended) => ended,
        Poll::Pending => match Box::pin(until_stopped(shared, &hold, handled)).await {
            ControlFlow::Continue(ended) => ended,
            ControlFlow::Break(exit) => return exit,
        },
    };
    let fault = match ended {
        Ok(Ran::Reported) => return None,
        Ok(Ran::Output(output)) => match check_size(output, shared.work.shared.settings.max_output) {
            Ok(output) => return Some(Exit::Succeeded(output)),
            Err(fault) => fault,
        },
        // A handler that returns because of cancellation is not counted as a failure.
        Err(_) if hold.lost.is_cancelled() => return None,
        Err(fault) => fault,
    };
    Some(Box::pin(judge(shared, claimed, fault, since)).await)
}

/// Polls a handler until it ends or must stop.
async fn until_stopped(
    shared: &Shared,
    hold: &Hold,
    handled: Guarded<'_>,
) -> ControlFlow<Option<Exit>, Result<Ran, Fault>> {
    tokio::select! {
        handled = handled => ControlFlow::Continue(handled),
        // Another worker holds the step, or will; the store would reject a report.
        () = hold.lost.cancelled() => ControlFlow::Break(None),
        () = shared.stopped.cancelled() => {
            hold.lost.cancel();
            let message = "its worker was shut down".to_owned();
            let delay = shared.work.shared.settings.requeue.shutdown;
            ControlFlow::Break(Some(Exit::Requeued { delay, reason: Reason::Shutdown, message }))
        }
    }
}

/// Decides the exit of a step that did not succeed, by its policy.
async fn judge(shared: &Shared, claimed: &Claimed, fault: Fault, since: Duration) -> Exit {
    let work = &shared.work.shared;
    let known = patiently(&work.callers, |_| work.names.compiled(&*work.store, claimed.policy));
    let policy = match known.await {
        Ok(policy) => policy,
        Err(error) => {
            // Without the policy there is no decision. The step returns to its queue, and another node may be able to
            // read the policy.
            tracing::error!(%error, "a step's policy cannot be read");
            let delay = work.settings.requeue.rescue;
            return Exit::Requeued { delay, reason: Reason::Busy, message: error.to_string() };
        }
    };
    let ran = clock::now().saturating_sub(since);
    match verdict(&policy, claimed, ran, &fault, &work.settings.requeue, clock::roll()) {
        Verdict::Report(exit) => exit,
        Verdict::Refresh { credential, why } => match refresh(shared, claimed, credential).await {
            Ok(()) => Exit::Retry { delay: Duration::ZERO, refreshed: true, why },
            Err(fault) => {
                let told = Claimed { refreshed: true, ..claimed.clone() };
                match verdict(&policy, &told, ran, &fault, &work.settings.requeue, clock::roll()) {
                    Verdict::Report(exit) => exit,
                    Verdict::Refresh { why, .. } => Exit::Failed(why),
                }
            }
        },
    }
}

fn check_size(output: Payload, limit: usize) -> Result<Payload, Fault> {
    let size = output.bytes.len();
    if size <= limit {
        return Ok(output);
    }
    Err(Fault::permanent(format!("the output has {size} bytes, and may have {limit} (work.max_output)")))
}

fn handle<'a>(shared: &'a Shared, claimed: &'a Claimed, context: Context) -> Guarded<'a> {
    let wait = |why| Guarded(Box::pin(std::future::ready(Err(Fault::snooze(Duration::from_secs(1), why)))));
    match context.lane.kind {
        #[cfg(feature = "http")]
        Kind::Http => match &shared.http {
            Some(http) => {
                Guarded(Box::pin(async move { http.run(&context, &claimed.payload).await.map(Ran::Output) }))
            }
            None => wait("this worker makes no HTTP requests"),
        },
        _ => match shared.handlers.get(&context.lane.operation) {
            Some(handler) => {
                let payload = claimed.payload.clone();
                let running = catch_unwind(AssertUnwindSafe(|| handler.run(context, payload)));
                Guarded(running.unwrap_or_else(|_| Box::pin(std::future::ready(Err(verdict::panicked())))))
            }
            None => wait("this worker has no handler for it"),
        },
    }
}

/// A running handler. A panic becomes a fault, and the slot becomes free again.
struct Guarded<'a>(Pin<Box<dyn Future<Output = Result<Ran, Fault>> + Send + 'a>>);

impl Future for Guarded<'_> {
    type Output = Result<Ran, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        // The handler is not polled again after a panic, so no inconsistent state can be observed.
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(verdict::panicked())))
    }
}

async fn refresh(shared: &Shared, claimed: &Claimed, credential: u64) -> Result<(), Fault> {
    #[cfg(feature = "http")]
    if let Some(http) = &shared.http {
        return http.refresh(&claimed.payload, credential).await;
    }
    let _ = (shared, claimed, credential);
    Err(Fault::transient("there is nobody to refresh the credential"))
}
