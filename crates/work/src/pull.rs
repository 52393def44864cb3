//! Remote workers: they claim steps, renew leases, and report outcomes.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Class, MAX_DELAY};

use crate::claimed_step::{ClaimedStep, snoozed};
use crate::notify::Notifier;
use crate::record::FailureReason;
use crate::registration::WorkerRegistration;
use crate::store::{Exit, FailureText, Receipt, Result, Selection, StepOutput};
use crate::with_retry::with_retry;
use crate::work::Work;
use crate::{Error, Fault, Payload, StepId, clock};

/// The largest number of steps in one claim.
const MAX_CLAIMED: u32 = 1000;

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
        self.work.claim_steps(&self.selection, self.registration.id, limit, lease).await
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
        let mut wakes = self.work.shared.store.wakes();
        let until = clock::now().saturating_add(wait);
        loop {
            wakes.mark_unchanged();
            let looked_at = clock::now();
            let steps = self.claim(limit, lease).await?;
            let left = until.saturating_sub(clock::now());
            if !steps.is_empty() || left.is_zero() {
                return Ok(steps);
            }
            tokio::select! {
                () = &mut enough => return Ok(steps),
                _ = wakes.changed() => {}
                () = self.work.shared.due.next(looked_at, left.min(self.work.shared.settings.poll)) => {}
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

    /// Reports that the step has succeeded. An output above the limit is dropped, and a note on the step says so. If the future is dropped, the report may or may not be recorded; the caller
    /// may repeat it.
    pub async fn complete(&self, step: &ClaimedStep, output: Payload) -> Result<Receipt> {
        let output = StepOutput::whole(output).within(self.work.shared.settings.max_output);
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
