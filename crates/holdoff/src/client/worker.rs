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
/// The most that the daemon gives at once.
const MOST_AT_ONCE: usize = 100;
/// How long a claim waits for steps; a worker that is to stop does so then.
const WAIT: Duration = Duration::from_secs(5);

/// A step that is this worker's.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct PulledStep {
    /// Its id.
    pub step: String,
    /// What is to be done.
    pub operation: String,
    /// The fencing token: it grows with every claim of the step.
    pub token: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What goes into it, if that is JSON.
    #[serde(default)]
    pub payload: Value,
    /// What came out of the steps before it.
    #[serde(default)]
    pub inputs: Vec<StepInput>,
}

/// What came out of a step before.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct StepInput {
    /// The name of that step.
    pub name: String,
    /// What came out of it, if that is JSON.
    #[serde(default)]
    pub output: Value,
}

/// A worker that pulls its steps from the daemon, to be told what it can handle.
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
    /// A worker of this name, which attempts are shown under.
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
    /// An operation that it can handle.
    #[must_use]
    pub fn operation(mut self, operation: impl Into<String>) -> Self {
        self.operations.push(operation.into());
        self
    }

    /// Only steps of this queue, and of others named so; otherwise all.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// Only steps of this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// After how long a step is given to somebody else if this worker vanishes; 60 s unless it is said.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How many steps run at once; 16 unless it is said.
    #[must_use]
    pub fn concurrency(mut self, places: usize) -> Self {
        self.places = places.clamp(1, 10_000);
        self
    }

    /// Pulls steps and hands them to `handler` until `stop` comes; then waits for what runs.
    ///
    /// What the handler returns is reported. If a step is not this worker's any more, its handler is dropped. A daemon
    /// that does not answer for as long as the policy goes on is asked again; one that refuses ends the worker.
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
            // A claim that is under way is not given up: its steps would wait for a lease.
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
        // All places are free when nothing runs.
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
        // The step stays the worker's own while that is being said; if it cannot be, it comes back when its lease is over.
        let said = tokio::select! {
            said = self.report(path, &id, token, more) => said,
            () = self.keep(&id, token) => return,
        };
        // What is refused for good would be refused again, after having been done again.
        if let Err(Error::Refused(problem)) = &said
            && matches!(problem.status, 400 | 413 | 415 | 422)
        {
            let why = serde_json::json!({ "class": "permanent", "message": problem.to_string() });
            let _ = self.report("fail", &id, token, why).await;
        }
    }

    /// Says that the worker is alive, until the step is not its own any more.
    async fn keep(&self, step: &str, token: u64) {
        loop {
            tokio::time::sleep(self.lease / 3).await;
            let lease = serde_json::json!({ "lease": holdoff_policy::format_duration(self.lease) });
            match self.report("heartbeat", step, token, lease).await {
                Err(error) if error.is("step-not-held") => return,
                // Whoever cannot be reached may be back before the lease is over.
                _ => {}
            }
        }
    }

    async fn report(&self, path: &str, step: &str, token: u64, more: Value) -> Result<Value, Error> {
        self.client.post(&format!("/v1/workers/{path}"), &Report { step, token, more }).await
    }
}
