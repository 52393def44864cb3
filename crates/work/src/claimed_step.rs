//! A claimed step, and what workers in this process and remote workers do alike: claim with inputs, judge a fault, and
//! report.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Attempt, Class, Compiled, Decision, Failure, MAX_DELAY, Policy, SoFar};

use crate::fault::{Fault, FaultKind};
use crate::names::KnownLane;
use crate::notify::Notifier;
use crate::record::{DelaySource, FailureReason};
use crate::settings::RequeueSettings;
use crate::store::{
    ClaimRow, EndedStep, Exit, FailureText, Finished, Receipt, Report, RequeueReason, Result, Selection,
    WorkerId,
};
use crate::with_retry::{CALL_TIMEOUT, with_retry, within};
use crate::work::{Shared, Work};
use crate::{Error, Kind, Lane, Payload, StepId, clock};

/// The inputs of a step without parents, which most steps are.
static NO_INPUTS: BTreeMap<String, Payload> = BTreeMap::new();

/// The inputs of claimed steps.
#[derive(Debug, Default)]
struct StepInputs {
    /// The outputs of the parents, by step and by the parent's name.
    loaded: BTreeMap<StepId, BTreeMap<String, Payload>>,
    /// The sizes in bytes of those that exceed the limit and are not loaded.
    too_large: BTreeMap<StepId, u64>,
}

/// A claimed step.
#[derive(Clone, Debug)]
pub struct ClaimedStep {
    pub(crate) row: ClaimRow,
    /// `None` if the step is not held any more.
    pub(crate) lane: Option<Arc<KnownLane>>,
    pub(crate) inputs: Option<Arc<BTreeMap<String, Payload>>>,
    /// The time before the request to the store, by this process's clock: the lease lasts at least from here, so that it
    /// is not overestimated.
    pub(crate) requested: Duration,
    /// The time at which the run begins: the store has answered. If the step was claimed earlier, it is the time at which
    /// its record was read.
    pub(crate) since: Duration,
    /// The time between the claim and `since`.
    before: Duration,
}

impl ClaimedStep {
    /// Returns a step that was claimed this long ago, perhaps by another node. Its inputs are not read.
    pub(crate) const fn held(row: ClaimRow, lane: Arc<KnownLane>, since: Duration, before: Duration) -> Self {
        Self { row, lane: Some(lane), inputs: None, requested: since, since, before }
    }

    /// Returns a step that is not held any more: only its key and its lease are known.
    pub(crate) fn expired(step: StepId, lease: i64) -> Self {
        let row = ClaimRow {
            step,
            lane: 0,
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
            ctid_hint: None,
            destination: None,
        };
        Self::unread(row)
    }

    /// Returns a step of which only the row is known.
    fn unread(row: ClaimRow) -> Self {
        let now = clock::now();
        Self { row, lane: None, inputs: None, requested: now, since: now, before: Duration::ZERO }
    }

    /// Whether the step is not held any more.
    pub(crate) const fn is_expired(&self) -> bool {
        self.lane.is_none()
    }

    /// Returns the time since the claim.
    pub(crate) fn ran(&self) -> Duration {
        self.before.saturating_add(clock::now().saturating_sub(self.since))
    }

    /// Returns the report of this exit.
    pub(crate) fn report(&self, exit: Exit) -> Report {
        Report {
            step: self.row.step,
            lease: self.row.lease,
            has_children: self.row.has_children,
            took: self.ran(),
            ctid_hint: None,
            attempt: self.row.failures.saturating_add(1),
            destination: self.row.destination.clone(),
            trace: self.row.trace.as_deref().filter(|_| exit.is_failure()).map(Into::into),
            exit,
        }
    }

    /// Returns the step.
    pub const fn step(&self) -> StepId {
        self.row.step
    }

    /// Returns the namespace; `None` if the step is not held any more.
    pub fn namespace(&self) -> Option<&str> {
        self.lane.as_ref().map(|known| known.lane.namespace.as_str())
    }

    /// Returns the operation; it is empty if the step is not held any more.
    pub fn operation(&self) -> &str {
        self.lane.as_ref().map_or("", |known| &known.lane.operation)
    }

    /// Returns the fencing token, which grows with every claim of the step.
    pub fn token(&self) -> u64 {
        u64::try_from(self.row.lease).unwrap_or(0)
    }

    /// Returns the number of this attempt; the first is 1.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.row.failures).unwrap_or(0).saturating_add(1)
    }

    /// Returns the payload.
    pub const fn payload(&self) -> &Payload {
        &self.row.payload
    }

    /// Returns the outputs of its parents, by their names.
    pub fn inputs(&self) -> &BTreeMap<String, Payload> {
        self.inputs.as_deref().unwrap_or(&NO_INPUTS)
    }
}

impl Work {
    /// Claims due steps of one lane, with the outputs of their parents. A step whose inputs exceed the limit fails.
    ///
    /// The claim is not retried. If its response is lost, the claimed steps are rescued when their leases expire.
    pub(crate) async fn claim_steps(
        &self,
        selection: &Selection,
        worker: WorkerId,
        limit: i64,
        lease: Duration,
        notifier: &Notifier,
    ) -> Result<Vec<ClaimedStep>> {
        let Shared { store, names, call_policy, .. } = &*self.shared;
        let lease = lease.min(MAX_DELAY);
        loop {
            let requested = clock::now();
            let rows = within(CALL_TIMEOUT, store.claim(selection, worker, limit, lease)).await?;
            let since = clock::now();
            // The steps of one claim are in the same lane.
            let Some(first) = rows.first() else { return Ok(Vec::new()) };
            let needed = async {
                let lane = with_retry(call_policy, |_| names.lane(&**store, first.lane)).await?;
                let inputs = self.inputs_of(&rows, lane.lane.kind).await?;
                Ok((lane, inputs))
            };
            let (lane, mut inputs) = match needed.await {
                Ok(needed) => needed,
                Err(error) => {
                    self.put_back(rows, &error).await;
                    return Err(error);
                }
            };
            let claimed = |row: ClaimRow| {
                let inputs = inputs.loaded.remove(&row.step).map(Arc::new);
                let lane = Some(Arc::clone(&lane));
                ClaimedStep { row, lane, inputs, requested, since, before: Duration::ZERO }
            };
            let claimed: Vec<ClaimedStep> = rows.into_iter().map(claimed).collect();
            if inputs.too_large.is_empty() {
                return Ok(claimed);
            }
            let (refused, claimed): (Vec<_>, Vec<_>) =
                claimed.into_iter().partition(|step| inputs.too_large.contains_key(&step.row.step));
            self.refuse(&refused, &inputs.too_large, notifier).await;
            // More steps may be due.
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
    }

    /// Fails steps whose inputs are too large. If the store does not accept the reports, the steps are rescued when their
    /// leases expire, and refused again.
    async fn refuse(&self, steps: &[ClaimedStep], sizes: &BTreeMap<StepId, u64>, notifier: &Notifier) {
        let limit = self.shared.settings.max_inputs;
        let report = |step: &ClaimedStep| {
            let size = sizes.get(&step.row.step).copied().unwrap_or_default();
            let message = format!(
                "the outputs of the steps that it depends on have {size} bytes together, and the limit is {limit} \
                (work.max_inputs): let these steps return references to their results, or raise the limit and retry this step"
            );
            step.report(Exit::Failed(FailureText::new(Class::Permanent, message), FailureReason::Permanent))
        };
        let reports: Vec<Report> = steps.iter().map(report).collect();
        let lanes: Vec<_> = steps.iter().map(|step| step.lane.clone()).collect();
        if let Err(error) = self.write_reports(&reports, &lanes, notifier, &self.shared.call_policy).await {
            tracing::warn!(%error, "failed to refuse steps with too large inputs; they are rescued when their leases expire");
        }
    }

    /// Requeues steps that were claimed and cannot run, because their inputs cannot be read. If this fails as well, they
    /// are rescued when their leases expire.
    async fn put_back(&self, rows: Vec<ClaimRow>, why: &Error) {
        let report = |row| {
            let delay = self.shared.settings.requeue.busy;
            let message = format!("the inputs of the step cannot be read: {why}");
            ClaimedStep::unread(row).report(Exit::Requeued { delay, reason: RequeueReason::Busy, message })
        };
        let reports: Vec<Report> = rows.into_iter().map(report).collect();
        if let Err(error) = within(CALL_TIMEOUT, self.shared.store.finish(&reports, &|_| None)).await {
            let steps = reports.len();
            tracing::warn!(%error, steps, "failed to requeue claimed steps; they are rescued when their leases expire");
        }
    }

    /// Returns the outputs of the parents, for the steps that have parents. HTTP steps do not read them.
    async fn inputs_of(&self, rows: &[ClaimRow], kind: Kind) -> Result<StepInputs> {
        let Shared { store, call_policy, settings, .. } = &*self.shared;
        let mut inputs = StepInputs::default();
        let has_inputs = |row: &&ClaimRow| row.has_parents && kind != Kind::Http;
        let mut children: Vec<StepId> = rows.iter().filter(has_inputs).map(|row| row.step).collect();
        if children.is_empty() {
            return Ok(inputs);
        }
        inputs.too_large =
            with_retry(call_policy, |_| store.input_sizes(&children)).await?.into_iter().collect();
        inputs.too_large.retain(|_, size| *size > settings.max_inputs as u64);
        children.retain(|step| !inputs.too_large.contains_key(step));
        for (step, parent, output) in with_retry(call_policy, |_| store.inputs(&children)).await? {
            inputs.loaded.entry(step).or_default().insert(parent, output);
        }
        Ok(inputs)
    }

    /// Returns the exit of a step whose run did not succeed, by its policy.
    pub(crate) async fn judge(&self, step: &ClaimedStep, fault: &Fault) -> Result<Exit> {
        let Shared { store, names, call_policy, settings, .. } = &*self.shared;
        let policy = with_retry(call_policy, |_| names.compiled(&**store, step.row.policy)).await?;
        Ok(judge(&policy, &step.row, step.ran(), fault, &settings.requeue, clock::roll()))
    }

    /// Writes reports, retried by this policy, with the notifications that they cause. Counts each under the lane of
    /// its step.
    pub(crate) async fn write_reports(
        &self,
        reports: &[Report],
        lanes: &[Option<Arc<KnownLane>>],
        notifier: &Notifier,
        policy: &Policy,
    ) -> Result<Vec<Receipt>> {
        let Shared { store, names, .. } = &*self.shared;
        let notify = |ended: &EndedStep| notifier.notify(names, ended);
        let Finished { receipts, delays } = with_retry(policy, |_| store.finish(reports, &notify)).await?;
        for delay in delays {
            self.shared.due.add(delay);
        }
        let mut accepted = Vec::with_capacity(reports.len());
        for ((report, lane), receipt) in reports.iter().zip(lanes).zip(&receipts) {
            match (receipt, lane) {
                (Receipt::Accepted, Some(known)) => {
                    known.metrics.finished(report);
                    log_failure(&known.lane, report);
                    if let Some(delay) = report.exit.delay() {
                        self.shared.due.add(delay);
                    }
                    accepted.push((&known.lane, report));
                }
                (Receipt::Accepted, None) => {}
                (_, known) => {
                    if let Some(known) = known {
                        known.metrics.fenced();
                    }
                    let (step, lease) = (report.step, report.lease);
                    tracing::debug!(%step, lease, ?receipt, "rejected a report: its lease no longer holds the step");
                }
            }
        }
        self.count_finished(accepted.into_iter());
        Ok(receipts)
    }
}

/// Logs a failure that the store has accepted, with the fields of the in-process executor's log. The message is not
/// logged, because it may contain secrets that scrubbing has missed.
fn log_failure(lane: &Lane, report: &Report) {
    let Some(class) = report.exit.class() else { return };
    let (step, attempt, trace) = (report.step, report.attempt, report.trace.as_deref());
    let Some(delay) = report.exit.delay() else {
        return log_end(lane, step, attempt, class, report.exit.stop_reason().unwrap_or_default(), trace);
    };
    let (task, step, operation, trace_id) = (step.task, step.number, &lane.operation, trace_id(trace));
    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(%task, step, operation, attempt, class, delay_ms, trace_id, "scheduled a retry");
}

/// Logs that a step has failed finally, or is in conflict.
pub(crate) fn log_end(
    lane: &Lane,
    step: StepId,
    attempt: i32,
    class: &str,
    reason: &str,
    trace: Option<&str>,
) {
    let (task, step, operation, trace_id) = (step.task, step.number, &lane.operation, trace_id(trace));
    tracing::warn!(%task, step, operation, attempt, class, reason, trace_id, "gave up");
}

/// Returns the id of the trace: the second field of the `traceparent`; empty if there is none.
fn trace_id(trace: Option<&str>) -> &str {
    trace.and_then(|trace| trace.split('-').nth(1)).unwrap_or_default()
}

/// Returns the exit of a step whose run did not succeed. `ran` is the time since the claim. The earlier attempts are in
/// `row`, as the store recorded them.
///
/// If the policy demands that a rejected credential be refreshed, the exit is an immediate retry with refreshed
/// credentials. A worker that keeps the credential itself refreshes it before it reports this exit.
pub(crate) fn judge(
    policy: &Compiled,
    row: &ClaimRow,
    ran: Duration,
    fault: &Fault,
    requeue: &RequeueSettings,
    roll: u32,
) -> Exit {
    let message = crate::scrub::scrub(&fault.message);
    let (failure, credential) = match fault.kind {
        FaultKind::Snoozed { wait } => {
            return snoozed(wait, message);
        }
        FaultKind::Busy { wait } => {
            let delay = wait.max(requeue.busy);
            let elapsed = row.elapsed.saturating_add(ran).saturating_add(delay);
            // Nothing was sent, so this is not a failure, but it may be too late for the next attempt.
            if row.failures > 0 && policy.deadline().is_some_and(|deadline| elapsed >= deadline) {
                let message =
                    format!("the deadline of the policy is too near for another attempt: {message}");
                return Exit::Failed(FailureText::new(Class::Transient, message), FailureReason::Deadline);
            }
            return Exit::Requeued { delay, reason: RequeueReason::Busy, message };
        }
        FaultKind::Failed { failure, credential } => (failure, credential),
    };
    let retry_after = failure.retry_after();
    let why = FailureText { retry_after, ..FailureText::new(failure.class(), message) };
    // Without a credential nothing can be refreshed, so the policy's wait applies immediately.
    let so_far = so_far(row, ran, row.refreshed || credential.is_none());
    let source = DelaySource::Policy;
    match (policy.decide(&so_far, &failure, roll), credential) {
        (Decision::Retry { after: delay }, _) => {
            let source = retry_after.map_or(source, |asked| {
                let contenders = failure.contenders().map_or(0, NonZeroU32::get);
                let unasked = Failure::new(failure.class()).with_contenders(contenders);
                match policy.decide(&so_far, &unasked, roll) {
                    Decision::Retry { after } if after < delay.min(asked) => DelaySource::Server,
                    _ => source,
                }
            });
            Exit::Retry { delay, source, refreshed: false, why }
        }
        (Decision::Refresh, Some(_)) => Exit::Retry { delay: Duration::ZERO, source, refreshed: true, why },
        (Decision::HandOff, _) => Exit::Conflicted(why),
        (Decision::GiveUp(reason), _) => Exit::Failed(why, reason.into()),
        // A later policy may return a decision that this worker does not know; the step then fails.
        _ => Exit::Failed(why, FailureReason::Permanent),
    }
}

/// Returns the exit of a step that asked to run later.
pub(crate) fn snoozed(wait: Duration, message: String) -> Exit {
    // The store cannot represent every time.
    Exit::Requeued { delay: wait.min(MAX_DELAY), reason: RequeueReason::Snoozed, message }
}

fn so_far(row: &ClaimRow, ran: Duration, refreshed: bool) -> SoFar {
    let failures = u32::try_from(row.failures).unwrap_or(0);
    SoFar {
        attempt: Attempt::new(failures.saturating_add(1)),
        elapsed: row.elapsed.saturating_add(ran),
        last_delay: row.last_delay,
        refreshed,
        deadline: None,
    }
}

/// Returns the fault of a handler that panicked. A panic counts as transient; the policy limits the attempts.
pub(crate) fn panicked() -> Fault {
    Fault::new(Failure::new(Class::Transient), "the handler panicked")
}

#[cfg(test)]
mod tests {
    use holdoff_policy::{Growth, Jitter};

    use super::*;
    use crate::TaskId;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> Policy {
        let builder = Policy::builder(Growth::constant(SECOND)).jitter(Jitter::None).attempts(3);
        builder.deadline(SECOND * 60).build().unwrap()
    }

    fn claimed(failures: i32) -> ClaimRow {
        ClaimRow { failures, ..ClaimedStep::expired(TaskId::fresh().step(0), 1).row }
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
    fn exit(row: &ClaimRow, ran: Duration, fault: Fault) -> Exit {
        judge(&policy(), row, ran, &fault, &RequeueSettings::default(), 0)
    }

    #[test]
    fn the_policy_grants_and_refuses() {
        let transient = || Fault::transient("busy");
        let Exit::Retry { delay, .. } = exit(&claimed(0), SECOND, transient()) else { panic!() };
        assert_eq!(delay, SECOND);
        assert!(matches!(exit(&claimed(2), SECOND, transient()), Exit::Failed(..)));
        assert!(matches!(exit(&claimed(0), SECOND, Fault::permanent("no")), Exit::Failed(..)));
        assert!(matches!(exit(&claimed(0), SECOND, Fault::conflict("no")), Exit::Conflicted(_)));
    }

    #[test]
    fn the_deadline_counts_from_the_first_attempt() {
        let late = ClaimRow { elapsed: SECOND * 58, ..claimed(1) };
        assert!(matches!(exit(&late, SECOND * 2, Fault::transient("x")), Exit::Failed(..)));
        assert!(matches!(exit(&late, SECOND / 2, Fault::transient("x")), Exit::Retry { .. }));
    }

    #[test]
    fn retry_after_is_a_floor() {
        let hinted = Fault::transient("later").retry_after(SECOND * 30);
        let Exit::Retry { delay, .. } = exit(&claimed(0), SECOND, hinted) else { panic!() };
        assert!(delay >= SECOND * 30);
    }

    #[test]
    fn snoozes_and_busy_destinations_are_not_failures() {
        let snooze = exit(&claimed(2), SECOND, Fault::snooze(SECOND * 7, "not yet"));
        let Exit::Requeued { delay, reason, .. } = snooze else { panic!() };
        assert_eq!((delay, reason), (SECOND * 7, RequeueReason::Snoozed));
        let busy = exit(&claimed(2), SECOND, Fault::busy(Duration::ZERO, "full"));
        let Exit::Requeued { delay, reason, .. } = busy else { panic!() };
        assert_eq!((delay, reason), (RequeueSettings::default().busy, RequeueReason::Busy));
    }

    #[test]
    fn a_step_at_a_busy_destination_ends_at_its_deadline() {
        let busy = || Fault::busy(Duration::ZERO, "full");
        let late = |failures, elapsed| ClaimRow { elapsed, ..claimed(failures) };
        assert!(matches!(exit(&late(1, SECOND * 50), SECOND, busy()), Exit::Requeued { .. }));
        let Exit::Failed(why, FailureReason::Deadline) = exit(&late(1, SECOND * 58), SECOND, busy()) else {
            panic!()
        };
        assert_eq!(why.message, "the deadline of the policy is too near for another attempt: full");
        // The deadline counts from the first attempt, and there was none.
        assert!(matches!(exit(&late(0, SECOND * 58), SECOND, busy()), Exit::Requeued { .. }));
    }

    #[test]
    fn a_rejected_credential_is_refreshed_once() {
        let rejected = || Fault::new(Class::Unauthorized, "401").with_credential(7);
        assert!(exit(&claimed(0), SECOND, rejected()).is_refreshed());
        let again = ClaimRow { refreshed: true, ..claimed(1) };
        assert!(matches!(exit(&again, SECOND, rejected()), Exit::Retry { refreshed: false, .. }));
        let without = Fault::new(Class::Unauthorized, "401");
        assert!(matches!(exit(&claimed(0), SECOND, without), Exit::Retry { refreshed: false, .. }));
    }
}
