//! Workers that run somewhere else: they claim, say that they are alive, and report.

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

/// The lane of a step of which nothing is known.
const NO_LANE: LaneId = -1;

/// The most steps that are given out at once.
const MOST: u32 = 1000;

/// Somebody who claims steps and runs them elsewhere.
///
/// Every report is fenced: one that comes after the lease is over changes nothing and says so, and one that comes
/// twice is answered with what was recorded the first time.
#[derive(Clone, Debug)]
pub struct Claimer {
    work: Work,
    presence: Arc<Presence>,
    wants: Wants,
    herald: Arc<Herald>,
}

/// A step that was claimed.
#[derive(Clone, Debug)]
pub struct Claim {
    pub(crate) claimed: Claimed,
    /// Nothing if the step is not held, so that nobody knows.
    namespace: Option<String>,
    operation: String,
    inputs: Vec<(String, Payload)>,
    pub(crate) since: Duration,
    /// How long it had been claimed by then.
    before: Duration,
}

impl Work {
    /// Somebody who claims steps of these operations, in these queues; no queue named means all.
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
    /// The same worker, with other wishes: in these namespaces and queues, none named meaning all, steps of these
    /// operations.
    #[must_use]
    pub fn wanting(&self, namespaces: Vec<String>, queues: Vec<String>, operations: Vec<String>) -> Self {
        Self { wants: Wants { namespaces, queues, operations, http: false }, ..self.clone() }
    }

    /// Claims due steps of one lane, as [`claim`](Self::claim) does, waiting so long for there to be any.
    pub async fn claim_within(&self, limit: u32, lease: Duration, wait: Duration) -> Result<Vec<Claim>> {
        self.claim_until(limit, lease, wait, std::future::pending()).await
    }

    /// The same, waiting no longer than until there is `enough`. That ends the waiting, never a look: what a look claims
    /// is answered, where dropping this would leave it with nobody until its lease is over.
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

    /// A step that was claimed before, perhaps through another node, so that it can be reported on. Of a lease that is
    /// over nothing is known but its number, and a report changes nothing.
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

    /// Claims due steps of one lane, at most so many, for so long.
    pub async fn claim(&self, limit: u32, lease: Duration) -> Result<Vec<Claim>> {
        let shared = &*self.work.shared;
        let limit = i64::from(limit.clamp(1, MOST));
        self.presence.say(&*shared.store).await;
        // Not repeated when the answer is lost: what was claimed then comes back when its lease is over.
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

    /// Says that the step is still being worked on; the lease lasts for so long from now.
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

    /// The step has succeeded.
    pub async fn complete(&self, claim: &Claim, output: Payload) -> Result<Receipt> {
        let (size, limit) = (output.bytes.len(), self.work.shared.settings.max_output);
        if size > limit {
            let message = format!("the output of {} has {size} bytes, and may have {limit}", claim.step());
            return Err(Error::NotPossible(message));
        }
        self.report(claim, Exit::Succeeded(output)).await
    }

    /// The step has failed: its policy decides what becomes of it. A delay hint goes into the fault, by
    /// [`Fault::retry_after`].
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
            // Whoever runs the step has the credentials, and can refresh them at once.
            Verdict::Refresh { why, .. } => Exit::Retry { delay: Duration::ZERO, refreshed: true, why },
        };
        self.report(claim, exit).await
    }

    /// The step does not want to run before so much time has passed. No attempt is burnt.
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

    /// The step.
    pub const fn step(&self) -> StepId {
        self.claimed.step
    }

    /// Its namespace; nothing if the step is not held any more.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Its operation.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The fencing token: it grows with every claim of the step.
    pub fn token(&self) -> u64 {
        u64::try_from(self.claimed.lease).unwrap_or(0)
    }

    /// Which attempt this is; the first is 1.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.claimed.failures).unwrap_or(0).saturating_add(1)
    }

    /// What goes into it.
    pub const fn payload(&self) -> &Payload {
        &self.claimed.payload
    }

    /// The outputs of its parents, by their names.
    pub fn inputs(&self) -> &[(String, Payload)] {
        &self.inputs
    }
}
