//! A worker that pulls its steps from the daemon.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::fault::StepFault;
use super::new::time;
use super::{Client, Error};

const LEASE: Duration = Duration::from_secs(60);
const PLACES: usize = 16;
/// The largest number of steps that the daemon returns for one claim.
const MOST_AT_ONCE: usize = 100;
/// The time that a claim waits for steps. A worker that is asked to stop stops after at most this time.
const WAIT: Duration = Duration::from_secs(5);

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
    places: usize,
}

#[derive(Serialize)]
struct Claim<'a> {
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
struct Claimed {
    items: Vec<PulledStep>,
}

#[derive(Serialize)]
struct Report<'a> {
    step: &'a str,
    token: u64,
    #[serde(flatten)]
    more: Value,
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
            places: PLACES,
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
    pub fn concurrency(mut self, places: usize) -> Self {
        self.places = places.clamp(1, 10_000);
        self
    }

    /// Claims steps and passes them to `handler` until `stop` completes, then waits for the running steps.
    ///
    /// The worker reports the result of each handler. If the worker loses a step, it drops the step's
    /// handler. If the daemon does not respond within the policy, the worker continues to poll; if the daemon
    /// refuses a claim, the worker ends.
    ///
    /// Use `stop` instead of dropping the future: the handlers run in tasks of their own and outlive it.
    pub async fn run<F, Fut>(self, handler: F, stop: impl Future<Output = ()>) -> Result<(), Error>
    where
        F: Fn(PulledStep) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, StepFault>> + Send + 'static,
    {
        let (worker, handler) = (Arc::new(self), Arc::new(handler));
        let places = Arc::new(Semaphore::new(worker.places));
        let mut stop = std::pin::pin!(stop);
        let ended = loop {
            let place = tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                place = Arc::clone(&places).acquire_owned() => place,
            };
            drop(place);
            // A claim in progress is not aborted: its steps would wait until their leases expire.
            let steps = match worker.claim(places.available_permits().clamp(1, MOST_AT_ONCE)).await {
                Ok(steps) => steps,
                Err(Error::Unreachable { .. }) => continue,
                Err(error) if error.problem().is_some_and(|problem| problem.status >= 500) => continue,
                Err(error) => break Err(error),
            };
            for step in steps {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
                let (worker, handler) = (Arc::clone(&worker), Arc::clone(&handler));
                tokio::spawn(async move {
                    worker.carry_out(step, &*handler).await;
                    drop(place);
                });
            }
        };
        // All permits are available when no step runs.
        let all = u32::try_from(worker.places).unwrap_or(u32::MAX);
        let _ = places.acquire_many(all).await;
        ended
    }

    async fn claim(&self, limit: usize) -> Result<Vec<PulledStep>, Error> {
        let claim = Claim {
            worker: &self.name,
            operations: &self.operations,
            queues: &self.queues,
            namespace: self.namespace.as_deref(),
            lease: Some(self.lease),
            wait: Some(WAIT),
            limit,
        };
        let claimed: Claimed = self.client.post("/v1/workers/claim", &claim).await?;
        Ok(claimed.items)
    }

    async fn carry_out<F, Fut>(&self, step: PulledStep, handler: &F)
    where
        F: Fn(PulledStep) -> Fut,
        Fut: Future<Output = Result<Value, StepFault>>,
    {
        let (id, token) = (step.step.clone(), step.token);
        let ended = tokio::select! {
            ended = handler(step) => ended,
            () = self.keep(&id, token) => return,
        };
        let (path, more) = match ended {
            Ok(output) => ("complete", serde_json::json!({ "output": output })),
            Err(fault) => fault.report(),
        };
        // The worker renews the lease during the report. If the report fails, the step returns to its queue
        // when the lease expires.
        let said = tokio::select! {
            said = self.report(path, &id, token, more) => said,
            () = self.keep(&id, token) => return,
        };
        // A permanent refusal of a result would recur after a repeated execution, so the step fails for good.
        if let Err(Error::Refused(problem)) = &said
            && matches!(problem.status, 400 | 413 | 415 | 422)
        {
            let why = serde_json::json!({ "class": "permanent", "message": problem.to_string() });
            let _ = self.report("fail", &id, token, why).await;
        }
    }

    /// Sends heartbeats until the worker loses the step.
    async fn keep(&self, step: &str, token: u64) {
        loop {
            tokio::time::sleep(self.lease / 3).await;
            let lease = serde_json::json!({ "lease": holdoff_policy::format_duration(self.lease) });
            match self.report("heartbeat", step, token, lease).await {
                Err(error) if error.is("step-not-held") => return,
                // An unreachable daemon may be back before the lease expires.
                _ => {}
            }
        }
    }

    async fn report(&self, path: &str, step: &str, token: u64, more: Value) -> Result<Value, Error> {
        self.client.post(&format!("/v1/workers/{path}"), &Report { step, token, more }).await
    }
}
