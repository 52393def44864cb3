//! Running one step.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Shared;
use super::finish::{Done, Reports};
use super::handler::Ran;
use crate::names::KnownLane;
use crate::patience::patiently;
use crate::store::{Claimed, Exit, Reason, Report};
use crate::verdict::{self, Verdict, verdict};
use crate::{Context, Fault, Kind, Payload, clock};

/// Starts a step that was claimed; its report goes to whoever finishes, with its place.
pub(super) fn start(
    shared: &Arc<Shared>,
    claimed: Claimed,
    lane: Arc<KnownLane>,
    inputs: BTreeMap<String, Payload>,
    since: Duration,
    place: OwnedSemaphorePermit,
    reports: Reports,
) {
    let cancelled = CancellationToken::new();
    shared.held.insert(claimed.step, claimed.lease, since, cancelled.clone());
    let context = Context {
        step: claimed.step,
        lane: Arc::clone(&lane.lane),
        attempt: u32::try_from(claimed.failures).unwrap_or(0).saturating_add(1),
        token: u64::try_from(claimed.lease).unwrap_or(0),
        has_children: claimed.has_children,
        since,
        inputs: Arc::new(inputs),
        trace: claimed.trace.as_deref().map(Arc::from),
        cancelled,
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
        let exit = run(&shared, &claimed, context, since).await;
        let took = clock::now().saturating_sub(since);
        // A step that was renewed has moved; and what is just being renewed is locked in another order.
        let is_young = took < shared.work.shared.settings.lease / 4;
        let report = exit.map(|exit| Report {
            step: claimed.step,
            lease: claimed.lease,
            has_children: claimed.has_children,
            took,
            whereabouts: claimed.whereabouts.clone().filter(|_| is_young),
            exit,
        });
        // Nobody listens only when the whole worker is gone; then the lease runs out.
        let _ = reports.send(Done { step: claimed.step, lease: claimed.lease, report, lane, place }).await;
    };
    shared.running.spawn(running.instrument(span));
}

/// Runs a step to its end; nothing if there is nothing to report.
async fn run(shared: &Arc<Shared>, claimed: &Claimed, context: Context, since: Duration) -> Option<Exit> {
    let work = &shared.work.shared;
    let cancelled = context.cancelled.clone();
    let handled = tokio::select! {
        // First what most often ends it: then nobody has to listen for the rest.
        biased;
        handled = handle(shared, claimed, context) => handled,
        // Somebody else has it, or will: whatever would be reported is refused.
        () = cancelled.cancelled() => return None,
        () = shared.stopped.cancelled() => {
            cancelled.cancel();
            let message = "its worker was shut down".to_owned();
            let delay = work.settings.requeue.shutdown;
            return Some(Exit::Requeued { delay, reason: Reason::Shutdown, message });
        }
    };
    let fault = match handled {
        Ok(Ran::Reported) => return None,
        Ok(Ran::Output(output)) => match check_size(output, work.settings.max_output) {
            Ok(output) => return Some(Exit::Succeeded(output)),
            Err(fault) => fault,
        },
        // Whoever is told to stop, and says that he did, has not failed.
        Err(_) if cancelled.is_cancelled() => return None,
        Err(fault) => fault,
    };
    let known = patiently(&work.callers, |_| work.names.compiled(&*work.store, claimed.policy));
    let policy = match known.await {
        Ok(policy) => policy,
        Err(error) => {
            // Without its policy nobody can decide: it goes back, and a node that knows it may do better.
            tracing::error!(%error, "a step's policy cannot be read");
            let delay = work.settings.requeue.rescue;
            return Some(Exit::Requeued { delay, reason: Reason::Busy, message: error.to_string() });
        }
    };
    let ran = clock::now().saturating_sub(since);
    match verdict(&policy, claimed, ran, &fault, &work.settings.requeue, clock::roll()) {
        Verdict::Report(exit) => Some(exit),
        Verdict::Refresh { credential, why } => {
            let refreshed = refresh(shared, claimed, credential).await;
            match refreshed {
                Ok(()) => Some(Exit::Retry { delay: Duration::ZERO, refreshed: true, why }),
                Err(fault) => {
                    let told = Claimed { refreshed: true, ..claimed.clone() };
                    let judged = verdict(&policy, &told, ran, &fault, &work.settings.requeue, clock::roll());
                    match judged {
                        Verdict::Report(exit) => Some(exit),
                        Verdict::Refresh { why, .. } => Some(Exit::Failed(why)),
                    }
                }
            }
        }
    }
}

fn check_size(output: Payload, limit: usize) -> Result<Payload, Fault> {
    let size = output.bytes.len();
    if size <= limit {
        return Ok(output);
    }
    Err(Fault::permanent(format!("the output has {size} bytes, and may have {limit} (work.max_output)")))
}

async fn handle(shared: &Arc<Shared>, claimed: &Claimed, context: Context) -> Result<Ran, Fault> {
    let payload = claimed.payload.clone();
    match context.lane.kind {
        #[cfg(feature = "http")]
        Kind::Http => match &shared.http {
            Some(http) => http.run(&context, &payload).await.map(Ran::Output),
            None => Err(Fault::snooze(Duration::from_secs(1), "this worker makes no HTTP requests")),
        },
        _ => match shared.handlers.get(&context.lane.operation) {
            Some(handler) => Guarded(handler.run(context, payload)).await,
            None => Err(Fault::snooze(Duration::from_secs(1), "this worker has no handler for it")),
        },
    }
}

/// A handler whose panics are its own: they become faults, and the place is free again.
struct Guarded(Pin<Box<dyn Future<Output = Result<Ran, Fault>> + Send>>);

impl Future for Guarded {
    type Output = Result<Ran, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        // Nothing of the handler is looked at again after it has panicked, so nothing half-done can be seen.
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
