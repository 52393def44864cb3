//! A worker that pulls its steps from the daemon.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Class;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;

use super::new::time;
use super::{Client, Error};

const LEASE: Duration = Duration::from_secs(60);
const CONCURRENCY: usize = 16;
/// The largest number of steps that the daemon returns for one claim.
const MAX_CLAIMED: usize = 100;
/// The time that a claim waits for steps. A worker that is asked to stop stops after at most this time.
const WAIT: Duration = Duration::from_secs(5);
/// The pause after a claim that failed although the client has repeated it. A `Retry-After` of the daemon extends it.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A step that this worker has claimed.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct PulledStep {
    /// The id.
    pub step: String,
    /// The operation.
    pub operation: String,
    /// The fencing token: it grows with every claim of the step.
    pub token: u64,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The payload, if it is JSON.
    #[serde(default)]
    pub payload: Value,
    /// The outputs of the steps that this step depends on.
    #[serde(default)]
    pub inputs: Vec<StepInput>,
}

/// The output of a step that the current step depends on.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct StepInput {
    /// The name of the other step.
    pub name: String,
    /// The output, if it is JSON.
    #[serde(default)]
    pub output: Value,
}

/// A worker that pulls its steps from the daemon. Configure its operations before it runs.
#[derive(Clone, Debug)]
pub struct PullWorker {
    client: Client,
    name: String,
    operations: Vec<String>,
    queues: Vec<String>,
    namespace: Option<String>,
    lease: Duration,
    slots: usize,
}

#[derive(Serialize)]
struct ClaimRequest<'a> {
    worker: &'a str,
    operations: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    queues: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(serialize_with = "time")]
    lease: Option<Duration>,
    #[serde(serialize_with = "time")]
    wait: Option<Duration>,
    limit: usize,
}

#[derive(Deserialize)]
struct ClaimResponse {
    items: Vec<PulledStep>,
}

#[derive(Serialize)]
struct StepReport<'a> {
    step: &'a str,
    token: u64,
    #[serde(flatten)]
    more: &'a Value,
}

impl Client {
    /// Creates a worker with this name, which appears in the attempts of its steps.
    pub fn worker(&self, name: impl Into<String>) -> PullWorker {
        PullWorker {
            client: self.clone(),
            name: name.into(),
            operations: Vec::new(),
            queues: Vec::new(),
            namespace: None,
            lease: LEASE,
            slots: CONCURRENCY,
        }
    }
}

impl PullWorker {
    /// Adds an operation that the worker handles.
    #[must_use]
    pub fn operation(mut self, operation: impl Into<String>) -> Self {
        self.operations.push(operation.into());
        self
    }

    /// Restricts the worker to this queue and the other queues added so. Without it, the worker claims from
    /// all queues.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// Restricts the worker to this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the lease: if this worker vanishes, another worker may claim its steps after this time. The
    /// default is 60 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the largest number of concurrent steps; the default is 16.
    #[must_use]
    pub fn concurrency(mut self, slots: usize) -> Self {
        self.slots = slots.clamp(1, 10_000);
        self
    }

    /// Claims steps and passes them to `handler` until `stop` completes, then waits for the running steps.
    ///
    /// The worker reports the result of each handler; a panic counts as a transient failure. If the worker loses a step, or
    /// cannot renew its lease in time, it drops the step's handler. If the daemon does not respond within the policy, or limits
    /// the rate, the worker continues to poll; if the daemon refuses a claim, the worker ends.
    ///
    /// If the future is dropped, the handlers are dropped, too. Their steps return to their queues when the leases expire;
    /// `stop` avoids that.
    pub async fn run<F, Fut>(self, handler: F, stop: impl Future<Output = ()>) -> Result<(), Error>
    where
        F: Fn(PulledStep) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, StepFault>> + Send + 'static,
    {
        let (worker, handler) = (Arc::new(self), Arc::new(handler));
        let mut running = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        let ended = loop {
            while running.try_join_next().is_some() {}
            let free = worker.slots.saturating_sub(running.len());
            tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                _ = running.join_next(), if free == 0 => continue,
                () = std::future::ready(()), if free > 0 => {}
            }
            let requested = holdoff_clock::now();
            // A claim in progress is not aborted: its steps would wait until their leases expire.
            let steps = match worker.claim(free.min(MAX_CLAIMED)).await {
                Ok(steps) => steps,
                Err(error) if !is_passing(&error) => break Err(error),
                Err(error) => {
                    let asked = error.problem().and_then(|problem| problem.retry_after).unwrap_or_default();
                    tokio::select! {
                        () = &mut stop => break Ok(()),
                        () = tokio::time::sleep(asked.clamp(PAUSE, LONGEST_PAUSE)) => continue,
                    }
                }
            };
            for step in steps {
                let (worker, handler) = (Arc::clone(&worker), Arc::clone(&handler));
                let lease = HeldLease::new(worker.lease, requested);
                running.spawn(async move { worker.execute(step, lease, &*handler).await });
            }
        };
        while running.join_next().await.is_some() {}
        ended
    }

    async fn claim(&self, limit: usize) -> Result<Vec<PulledStep>, Error> {
        let claim = ClaimRequest {
            worker: &self.name,
            operations: &self.operations,
            queues: &self.queues,
            namespace: self.namespace.as_deref(),
            lease: Some(self.lease),
            wait: Some(WAIT),
            limit,
        };
        let claimed: ClaimResponse = self.client.post("/v1/workers/claim", &claim).await?;
        Ok(claimed.items)
    }

    async fn execute<F, Fut>(&self, step: PulledStep, mut lease: HeldLease, handler: &F)
    where
        F: Fn(PulledStep) -> Fut,
        Fut: Future<Output = Result<Value, StepFault>> + Send + 'static,
    {
        let (id, token) = (step.step.clone(), step.token);
        // A task of its own, so that a panic ends the handler only. The set aborts it when it is dropped.
        let mut handling = JoinSet::new();
        handling.spawn(handler(step));
        let ended = tokio::select! {
            ended = handling.join_next() => match ended {
                Some(Ok(ended)) => ended,
                _ => Err(StepFault::transient("the handler panicked")),
            },
            () = self.keep(&id, token, &mut lease) => return,
        };
        // The worker renews the lease during the report. If the report fails, the step returns to its queue
        // when the lease expires.
        tokio::select! {
            () = self.finish(&id, token, ended) => {}
            () = self.keep(&id, token, &mut lease) => {}
        }
    }

    /// Reports the result of a handler.
    async fn finish(&self, step: &str, token: u64, ended: Result<Value, StepFault>) {
        let (path, body) = match ended {
            Ok(output) => ("complete", serde_json::json!({ "output": output })),
            Err(fault) => fault.report(),
        };
        let Err(Error::Refused(problem)) = self.report(path, step, token, &body).await else { return };
        let (path, body) = match (problem.status, body.get("output")) {
            // The daemon does not read requests of this size. The step has succeeded all the same.
            (413, Some(output)) => {
                ("complete", serde_json::json!({ "dropped_bytes": output.to_string().len() }))
            }
            // A permanent refusal of a result would recur after a repeated execution, so the step fails for good.
            (400 | 413 | 415 | 422, _) => {
                ("fail", serde_json::json!({ "class": "permanent", "message": problem.to_string() }))
            }
            _ => return,
        };
        let _ = self.report(path, step, token, &body).await;
    }

    /// Sends heartbeats until the worker loses the step, or cannot know any more that it still holds it.
    async fn keep(&self, step: &str, token: u64, lease: &mut HeldLease) {
        let body = serde_json::json!({ "lease": holdoff_policy::format_duration(self.lease) });
        loop {
            tokio::time::sleep(lease.until_renewal()).await;
            let requested = holdoff_clock::now();
            let renewal = self.report("heartbeat", step, token, &body);
            match tokio::time::timeout(lease.left(), renewal).await {
                Ok(Ok(_)) => lease.renewed(requested),
                Ok(Err(error)) if error.is("step-not-held") => return,
                Ok(Err(_)) if !lease.left().is_zero() => lease.retry_soon(),
                _ => return,
            }
        }
    }

    async fn report(&self, path: &str, step: &str, token: u64, more: &Value) -> Result<Value, Error> {
        self.client.post(&format!("/v1/workers/{path}"), &StepReport { step, token, more }).await
    }
}

/// Whether the daemon may accept the next claim.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        error => error.problem().is_some_and(|problem| problem.status >= 500 || problem.status == 429),
    }
}

/// What the worker knows of a lease, by its own clock.
#[derive(Debug)]
struct HeldLease {
    length: Duration,
    /// The lease lasts at least `length` from here.
    since: Duration,
    renew_at: Duration,
}

impl HeldLease {
    /// The lease of a step that has just arrived. The daemon granted it after `requested`.
    fn new(length: Duration, requested: Duration) -> Self {
        let now = holdoff_clock::now();
        // The claim may have waited for a step for longer than the lease, so that its beginning says little. An immediate
        // renewal tells more.
        let waited = now.saturating_sub(requested) > length / 3;
        let since = if waited { now } else { requested };
        Self { length, since, renew_at: if waited { now } else { since + length / 3 } }
    }

    fn renewed(&mut self, requested: Duration) {
        (self.since, self.renew_at) = (requested, requested + self.length / 3);
    }

    fn retry_soon(&mut self) {
        self.renew_at = holdoff_clock::now() + self.length / 12;
    }

    fn until_renewal(&self) -> Duration {
        self.renew_at.saturating_sub(holdoff_clock::now())
    }

    fn left(&self) -> Duration {
        (self.since + self.length).saturating_sub(holdoff_clock::now())
    }
}

/// The reason why a pulled step did not succeed.
#[derive(Clone, Debug)]
pub struct StepFault {
    kind: FaultKind,
    message: String,
}

#[derive(Clone, Debug)]
enum FaultKind {
    Failed { class: Class, retry_after: Option<Duration> },
    Snoozed { wait: Duration },
}

impl StepFault {
    /// Creates a failure of this class; the step's policy decides about a retry.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Failed { class, retry_after: None }, message: message.into() }
    }

    /// Creates a failure that may pass by itself.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Class::Transient, message)
    }

    /// Creates a failure that will not pass by itself.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, message)
    }

    /// Postpones the step without counting a failure.
    pub fn snooze(wait: Duration, reason: impl Into<String>) -> Self {
        Self { kind: FaultKind::Snoozed { wait }, message: reason.into() }
    }

    /// Sets the wait that the called server asked for.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        if let FaultKind::Failed { retry_after, .. } = &mut self.kind {
            *retry_after = Some(wait);
        }
        self
    }

    /// Returns the path and the body of the report.
    fn report(self) -> (&'static str, Value) {
        match self.kind {
            FaultKind::Snoozed { wait } => (
                "snooze",
                serde_json::json!({ "wait": holdoff_policy::format_duration(wait), "reason": self.message }),
            ),
            FaultKind::Failed { class, retry_after } => {
                let mut body = serde_json::json!({ "class": class.name(), "message": self.message });
                if let (Some(wait), Some(body)) = (retry_after, body.as_object_mut()) {
                    body.insert("retry_after".to_owned(), holdoff_policy::format_duration(wait).into());
                }
                ("fail", body)
            }
        }
    }
}
