//! Remote workers: they claim steps, renew leases, and report outcomes.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Class;

use super::Work;
use crate::notify::Herald;
use crate::patience::patiently;
use crate::presence::Presence;
use crate::store::{Claimed, Exit, LaneId, Reason, Receipt, Report, Result, Wants, Why};
use crate::verdict::{Verdict, verdict};
use crate::{Error, Fault, Payload, StepId, clock};

/// The lane of a step that is not held any more.
const NO_LANE: LaneId = -1;

/// The largest number of steps in one claim.
const MOST: u32 = 1000;

/// Claims steps for a worker that runs them elsewhere.
///
/// Every report is fenced. A report after the end of the lease changes nothing and is answered as fenced. A duplicate
/// report is answered with the outcome recorded for the first one.
#[derive(Clone, Debug)]
pub struct Claimer {
    work: Work,
    presence: Arc<Presence>,
    wants: Wants,
    herald: Arc<Herald>,
}

/// A claimed step.
#[derive(Clone, Debug)]
pub struct Claim {
    pub(crate) claimed: Claimed,
    /// `None` if the step is not held, so that its namespace is not known.
    namespace: Option<String>,
    operation: String,
    inputs: Vec<(String, Payload)>,
    pub(crate) since: Duration,
    /// The time between the claim and `since`.
    before: Duration,
}

impl Work {
    /// Registers a worker under this name, and returns a claimer for steps of these operations, in these queues; an
    /// empty list of queues means all.
    pub async fn claimer(&self, name: &str, operations: &[&str], queues: &[&str]) -> Result<Claimer> {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wants =
            Wants { namespaces: Vec::new(), queues: own(queues), operations: own(operations), http: false };
        let presence = Arc::new(Presence::new(&*self.shared.store, &self.shared.callers, name).await?);
        let herald = Arc::new(Herald::new(self).await?);
        Ok(Claimer { work: self.clone(), presence, wants, herald })
    }
}

impl Claimer {
    /// Returns the same worker with other selections: steps of these operations, in these namespaces and queues; an
    /// empty list of namespaces or queues means all.
    #[must_use]
    pub fn wanting(&self, namespaces: Vec<String>, queues: Vec<String>, operations: Vec<String>) -> Self {
        Self { wants: Wants { namespaces, queues, operations, http: false }, ..self.clone() }
    }

    /// Claims due steps of one lane, like [`claim`](Self::claim), and waits up to `wait` for steps to become due.
    ///
    /// Not cancel-safe: if the future is dropped, claimed steps stay without a worker until their leases expire.
    pub async fn claim_within(&self, limit: u32, lease: Duration, wait: Duration) -> Result<Vec<Claim>> {
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
    ) -> Result<Vec<Claim>> {
        tokio::pin!(enough);
        let mut wakes = self.work.shared.store.wakes();
        let until = clock::now().saturating_add(wait);
        loop {
            wakes.mark_unchanged();
            let claims = self.claim(limit, lease).await?;
            let left = until.saturating_sub(clock::now());
            if !claims.is_empty() || left.is_zero() {
                return Ok(claims);
            }
            tokio::select! {
                () = &mut enough => return Ok(claims),
                _ = wakes.changed() => {}
                () = tokio::time::sleep(left.min(self.work.shared.settings.poll)) => {}
            }
        }
    }

    /// Returns a step that was claimed before, perhaps through another node, so that it can be reported on. If the
    /// lease is no longer valid, only its number is known, and a report changes nothing. Cancel-safe.
    pub async fn held(&self, step: StepId, token: u64) -> Result<Claim> {
        let shared = &*self.work.shared;
        let lease = i64::try_from(token).unwrap_or(i64::MAX);
        let since = clock::now();
        let held = patiently(&shared.callers, |_| shared.store.held(step, lease)).await?;
        let Some((claimed, before)) = held else { return Ok(Claim::over(step, lease, since)) };
        let lane = shared.names.lane(&*shared.store, claimed.lane).await?;
        let (namespace, operation) = (Some(lane.lane.namespace.clone()), lane.lane.operation.clone());
        Ok(Claim { claimed, namespace, operation, inputs: Vec::new(), since, before })
    }

    /// Claims at most `limit` due steps of one lane, for the duration of `lease`.
    ///
    /// Not cancel-safe: if the future is dropped, claimed steps stay without a worker until their leases expire.
    pub async fn claim(&self, limit: u32, lease: Duration) -> Result<Vec<Claim>> {
        let shared = &*self.work.shared;
        let limit = i64::from(limit.clamp(1, MOST));
        self.presence.say(&*shared.store).await;
        // A claim is not retried. If its response is lost, the claimed steps are rescued when their leases expire.
        let claimed = shared.store.claim(&self.wants, self.presence.id, limit, lease).await?;
        let since = clock::now();
        let with_parents: Vec<StepId> =
            claimed.iter().filter(|claimed| claimed.has_parents).map(|claimed| claimed.step).collect();
        let mut inputs = Vec::new();
        if !with_parents.is_empty() {
            inputs = patiently(&shared.callers, |_| shared.store.inputs(&with_parents)).await?;
        }
        let mut claims = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            let lane = shared.names.lane(&*shared.store, claimed.lane).await?;
            let (mine, others) = inputs.into_iter().partition(|(step, ..)| *step == claimed.step);
            inputs = others;
            let mine: Vec<(StepId, String, Payload)> = mine;
            let inputs_of_step = mine.into_iter().map(|(_, name, output)| (name, output)).collect();
            claims.push(Claim {
                claimed,
                namespace: Some(lane.lane.namespace.clone()),
                operation: lane.lane.operation.clone(),
                inputs: inputs_of_step,
                since,
                before: Duration::ZERO,
            });
        }
        Ok(claims)
    }

    /// Renews the lease: it lasts for `lease` from now. If the future is dropped, the lease may or may not be renewed.
    pub async fn heartbeat(&self, claim: &Claim, lease: Duration) -> Result<()> {
        if claim.is_over() {
            return Err(Error::Fenced { step: claim.step(), lease: claim.token() });
        }
        let shared = &*self.work.shared;
        let held = [(claim.claimed.step, claim.claimed.lease)];
        let renewed = patiently(&shared.callers, |_| shared.store.renew(&held, lease)).await?;
        if renewed.first() == Some(&true) {
            return Ok(());
        }
        Err(Error::Fenced { step: claim.step(), lease: claim.token() })
    }

    /// Reports that the step has succeeded. If the future is dropped, the report may or may not be recorded; the caller
    /// may repeat it.
    pub async fn complete(&self, claim: &Claim, output: Payload) -> Result<Receipt> {
        let (size, limit) = (output.bytes.len(), self.work.shared.settings.max_output);
        if size > limit {
            let message = format!("the output of {} has {size} bytes, and may have {limit}", claim.step());
            return Err(Error::NotPossible(message));
        }
        self.report(claim, Exit::Succeeded(output)).await
    }

    /// Reports that the step has failed; its policy decides the next state. A delay hint is part of the fault, see
    /// [`Fault::retry_after`]. If the future is dropped, the report may or may not be recorded; the caller may repeat
    /// it.
    pub async fn fail(&self, claim: &Claim, fault: Fault) -> Result<Receipt> {
        let shared = &*self.work.shared;
        if claim.is_over() {
            let why = Why { class: Class::Permanent.name(), message: String::new() };
            return self.report(claim, Exit::Failed(why)).await;
        }
        let policy = shared.names.compiled(&*shared.store, claim.claimed.policy).await?;
        let ran = claim.ran();
        let judged = verdict(&policy, &claim.claimed, ran, &fault, &shared.settings.requeue, clock::roll());
        let exit = match judged {
            Verdict::Report(exit) => exit,
            // The remote worker has the credentials, and can refresh them at once.
            Verdict::Refresh { why, .. } => Exit::Retry { delay: Duration::ZERO, refreshed: true, why },
        };
        self.report(claim, exit).await
    }

    /// Requeues the step, to be claimed again after `wait`. This does not count as a failed attempt. If the future is
    /// dropped, the report may or may not be recorded; the caller may repeat it.
    pub async fn snooze(&self, claim: &Claim, wait: Duration, reason: &str) -> Result<Receipt> {
        let message = crate::scrub::scrub(reason);
        self.report(claim, Exit::Requeued { delay: wait, reason: Reason::Snoozed, message }).await
    }

    async fn report(&self, claim: &Claim, exit: Exit) -> Result<Receipt> {
        let shared = &*self.work.shared;
        let report = Report {
            step: claim.claimed.step,
            lease: claim.claimed.lease,
            has_children: claim.claimed.has_children,
            took: claim.ran(),
            whereabouts: None,
            attempt: claim.claimed.failures.saturating_add(1),
            destination: claim.claimed.destination.clone(),
            exit,
        };
        let reports = [report];
        let tell = |ended: &crate::store::Ended| self.herald.tell(&shared.names, ended);
        let receipts = patiently(&shared.callers, |_| shared.store.finish(&reports, &tell)).await?;
        let receipt = receipts.first().copied().unwrap_or(Receipt::Fenced);
        if let Some(lane) = shared.names.seen_lane(claim.claimed.lane) {
            match receipt {
                Receipt::Accepted => {
                    crate::worker::count(&lane.metrics, &reports);
                    self.work.note_finished(reports.iter().map(|report| (&lane.lane, report)));
                }
                _ => lane.metrics.fenced(),
            }
        }
        Ok(receipt)
    }
}

impl Claim {
    fn over(step: StepId, lease: i64, since: Duration) -> Self {
        let claimed = Claimed {
            step,
            lane: NO_LANE,
            policy: 0,
            lease,
            failures: 0,
            last_delay: Duration::ZERO,
            elapsed: Duration::ZERO,
            refreshed: false,
            has_parents: false,
            has_children: false,
            trace: None,
            payload: Payload::empty(),
            whereabouts: None,
            destination: None,
        };
        let (operation, inputs) = (String::new(), Vec::new());
        Self { claimed, namespace: None, operation, inputs, since, before: Duration::ZERO }
    }

    const fn is_over(&self) -> bool {
        self.claimed.lane == NO_LANE
    }

    fn ran(&self) -> Duration {
        self.before.saturating_add(clock::now().saturating_sub(self.since))
    }

    /// Returns the step.
    pub const fn step(&self) -> StepId {
        self.claimed.step
    }

    /// Returns the namespace; `None` if the step is not held any more.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the operation.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// Returns the fencing token, which grows with every claim of the step.
    pub fn token(&self) -> u64 {
        u64::try_from(self.claimed.lease).unwrap_or(0)
    }

    /// Returns the number of this attempt; the first is 1.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.claimed.failures).unwrap_or(0).saturating_add(1)
    }

    /// Returns the payload.
    pub const fn payload(&self) -> &Payload {
        &self.claimed.payload
    }

    /// Returns the outputs of its parents, by their names.
    pub fn inputs(&self) -> &[(String, Payload)] {
        &self.inputs
    }
}
