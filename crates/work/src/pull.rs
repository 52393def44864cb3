//! Remote workers: they claim steps, renew leases, and report outcomes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdoff_policy::{Class, MAX_DELAY};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::claimed_step::{ClaimedStep, snoozed};
use crate::due::DueTimes;
use crate::notify::Notifier;
use crate::record::FailureReason;
use crate::registration::WorkerRegistration;
use crate::store::{Exit, FailureText, Receipt, Result, Selection, StepOutput};
use crate::with_retry::with_retry;
use crate::work::{Shared, Work};
use crate::{Error, Fault, Payload, StepId, clock};

/// The largest number of steps in one claim.
const MAX_CLAIMED: u32 = 1000;

/// The callers of this process that wait for steps of one selection. They look at the store one after the other, and a look
/// that finds nothing answers for all of them: hundreds of waiting workers cost one look at the store per notification.
#[derive(Debug)]
pub(crate) struct ClaimQueue(tokio::sync::Mutex<LastLook>);

/// The last look at the store.
#[derive(Debug)]
struct LastLook {
    /// Has seen the notifications before that look.
    wakes: watch::Receiver<()>,
    looked_at: Duration,
    /// Whether it found nothing.
    is_drained: bool,
}

impl LastLook {
    /// Whether steps may have become due since then.
    fn may_find_steps(&self, due: &DueTimes, poll: Duration) -> bool {
        let is_old = || clock::now().saturating_sub(self.looked_at) >= poll;
        !self.is_drained
            || self.wakes.has_changed().unwrap_or(true)
            || is_old()
            || due.have_come_since(self.looked_at)
    }
}

/// The queues of the selections that callers wait for.
#[derive(Debug, Default)]
pub(crate) struct ClaimQueues(Mutex<HashMap<Selection, Weak<ClaimQueue>>>);

impl Work {
    fn claim_queue(&self, selection: &Selection) -> Arc<ClaimQueue> {
        let mut queues = self.shared.claim_queues.0.lock();
        if let Some(queue) = queues.get(selection).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let wakes = self.shared.store.wakes();
        let last = LastLook { wakes, looked_at: Duration::ZERO, is_drained: false };
        let queue = Arc::new(ClaimQueue(last.into()));
        queues.insert(selection.clone(), Arc::downgrade(&queue));
        queue
    }
}

/// Claims steps for a worker that runs them elsewhere.
///
/// Every report is fenced by the lease number of its claim, not by time. A report after the end of the lease is
/// accepted until the step is rescued, claimed again or cancelled. From then on a report changes nothing and is
/// answered as fenced. A duplicate report is answered with the outcome recorded for the first one.
#[derive(Clone, Debug)]
pub struct Claimer {
    work: Work,
    registration: Arc<WorkerRegistration>,
    selection: Selection,
    notifier: Arc<Notifier>,
}

impl Work {
    /// Registers a worker under this name, and returns a claimer for steps of these operations, in these queues; an
    /// empty list of queues means all.
    pub async fn claimer(&self, name: &str, operations: &[&str], queues: &[&str]) -> Result<Claimer> {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let selection = Selection {
            namespaces: Vec::new(),
            queues: own(queues),
            operations: own(operations),
            http: false,
        };
        let registration =
            WorkerRegistration::new(&*self.shared.store, &self.shared.call_policy, name).await?;
        let notifier = Arc::new(Notifier::new(self).await?);
        Ok(Claimer { work: self.clone(), registration: Arc::new(registration), selection, notifier })
    }
}

impl Claimer {
    /// Returns the same worker with other selections: steps of these operations, in these namespaces and queues; an
    /// empty list of namespaces or queues means all.
    #[must_use]
    pub fn with_selection(
        &self,
        namespaces: Vec<String>,
        queues: Vec<String>,
        operations: Vec<String>,
    ) -> Self {
        Self { selection: Selection { namespaces, queues, operations, http: false }, ..self.clone() }
    }

    /// Claims at most `limit` due steps of one lane, for the duration of `lease`.
    ///
    /// Not cancel-safe: if the future is dropped, claimed steps stay without a worker until their leases expire.
    pub async fn claim(&self, limit: u32, lease: Duration) -> Result<Vec<ClaimedStep>> {
        self.registration.report_alive(&*self.work.shared.store).await;
        let limit = i64::from(limit.clamp(1, MAX_CLAIMED));
        let (worker, notifier) = (self.registration.id, &self.notifier);
        self.work.claim_steps(&self.selection, worker, limit, lease, notifier).await
    }

    /// Claims due steps of one lane, like [`claim`](Self::claim), and waits up to `wait` for steps to become due.
    ///
    /// Not cancel-safe: if the future is dropped, claimed steps stay without a worker until their leases expire.
    pub async fn claim_within(
        &self,
        limit: u32,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<ClaimedStep>> {
        self.claim_until(limit, lease, wait, std::future::pending()).await
    }

    /// Claims like [`claim_within`](Self::claim_within), and stops waiting when `enough` completes. `enough` ends only
    /// the waiting, never a claim in progress: the steps of that claim are returned. Dropping the future instead would
    /// leave them without a worker until their leases expire.
    pub async fn claim_until(
        &self,
        limit: u32,
        lease: Duration,
        wait: Duration,
        enough: impl Future<Output = ()> + Send,
    ) -> Result<Vec<ClaimedStep>> {
        tokio::pin!(enough);
        let Shared { due, settings, .. } = &*self.work.shared;
        let queue = self.work.claim_queue(&self.selection);
        let until = clock::now().saturating_add(wait);
        loop {
            let mut turn = tokio::select! {
                biased;
                turn = queue.0.lock() => turn,
                () = &mut enough => return Ok(Vec::new()),
                // The store hangs, and the callers before this one wait for it.
                () = tokio::time::sleep(until.saturating_sub(clock::now())) => return Ok(Vec::new()),
            };
            if turn.may_find_steps(due, settings.poll) {
                turn.is_drained = false;
                turn.wakes.mark_unchanged();
                turn.looked_at = clock::now();
                let steps = self.claim(limit, lease).await?;
                if !steps.is_empty() {
                    return Ok(steps);
                }
                turn.is_drained = true;
            }
            let (mut wakes, looked_at) = (turn.wakes.clone(), turn.looked_at);
            drop(turn);
            let left = until.saturating_sub(clock::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            tokio::select! {
                () = &mut enough => return Ok(Vec::new()),
                _ = wakes.changed() => {}
                () = due.next(looked_at, left.min(settings.poll)) => {}
            }
        }
    }

    /// Returns a step that was claimed before, perhaps through another node, so that it can be reported on. If the
    /// step no longer runs under this lease number, a report changes nothing. Cancel-safe.
    pub async fn held(&self, step: StepId, token: u64) -> Result<ClaimedStep> {
        let shared = &*self.work.shared;
        let lease = i64::try_from(token).unwrap_or(i64::MAX);
        let since = clock::now();
        let held = with_retry(&shared.call_policy, |_| shared.store.held_step(step, lease)).await?;
        let Some((row, before)) = held else { return Ok(ClaimedStep::expired(step, lease)) };
        let lane = shared.names.lane(&*shared.store, row.lane).await?;
        Ok(ClaimedStep::held(row, lane, since, before))
    }

    /// Renews the lease: it lasts for `lease` from now. If the future is dropped, the lease may or may not be renewed.
    pub async fn heartbeat(&self, step: &ClaimedStep, lease: Duration) -> Result<()> {
        let fenced = || Error::Fenced { step: step.step(), lease: step.token() };
        if step.is_expired() {
            return Err(fenced());
        }
        let shared = &*self.work.shared;
        let held = [(step.row.step, step.row.lease)];
        let renewed =
            with_retry(&shared.call_policy, |_| shared.store.renew(&held, lease.min(MAX_DELAY))).await?;
        if renewed.first() == Some(&true) { Ok(()) } else { Err(fenced()) }
    }

    /// Reports that the step has succeeded. An output above the limit is dropped, and a note on the step says so. If the
    /// future is dropped, the report may or may not be recorded; the caller may repeat it.
    pub async fn complete(&self, step: &ClaimedStep, output: Payload) -> Result<Receipt> {
        let output = StepOutput::whole(output).within(self.work.shared.settings.max_output);
        self.report(step, Exit::Succeeded(output)).await
    }

    /// Reports that the step has succeeded with an output of `size` bytes, which the worker has dropped because it is too
    /// large to send. If the future is dropped, the report may or may not be recorded; the caller may repeat it.
    pub async fn complete_without_output(&self, step: &ClaimedStep, size: u64) -> Result<Receipt> {
        let output = StepOutput::dropped(size, self.work.shared.settings.max_output);
        self.report(step, Exit::Succeeded(output)).await
    }

    /// Reports that the step has failed; its policy decides the next state. A delay hint is part of the fault, see
    /// [`Fault::retry_after`]. If the future is dropped, the report may or may not be recorded; the caller may repeat
    /// it.
    pub async fn fail(&self, step: &ClaimedStep, fault: Fault) -> Result<Receipt> {
        let exit = if step.is_expired() {
            Exit::Failed(FailureText::new(Class::Permanent, String::new()), FailureReason::Permanent)
        } else {
            // If the credential must be refreshed, the remote worker refreshes it before the next attempt.
            self.work.judge(step, &fault).await?
        };
        self.report(step, exit).await
    }

    /// Requeues the step, to be claimed again after `wait`. This does not count as a failed attempt. If the future is
    /// dropped, the report may or may not be recorded; the caller may repeat it.
    pub async fn snooze(&self, step: &ClaimedStep, wait: Duration, reason: &str) -> Result<Receipt> {
        let message = crate::scrub::scrub(reason);
        self.report(step, snoozed(wait, message)).await
    }

    async fn report(&self, step: &ClaimedStep, exit: Exit) -> Result<Receipt> {
        let (reports, lanes) = ([step.report(exit)], [step.lane.clone()]);
        let policy = &self.work.shared.call_policy;
        let receipts = self.work.write_reports(&reports, &lanes, &self.notifier, policy).await?;
        Ok(receipts.first().copied().unwrap_or(Receipt::Fenced))
    }
}
