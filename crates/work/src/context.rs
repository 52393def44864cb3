//! The step's data that a handler receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::worker::StepLease;
use crate::{Fault, Payload, StepId};
use serde::de::DeserializeOwned;

/// The inputs of a step without parents, which most steps are.
static NO_INPUTS: BTreeMap<String, Payload> = BTreeMap::new();

/// The handler's view of the step that it runs.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) step: StepId,
    pub(crate) lane: Arc<Lane>,
    pub(crate) attempt: u32,
    pub(crate) token: u64,
    pub(crate) has_children: bool,
    /// The time of the claim, by this process's clock.
    pub(crate) since: std::time::Duration,
    pub(crate) inputs: Option<Arc<BTreeMap<String, Payload>>>,
    pub(crate) trace: Option<Arc<str>>,
    pub(crate) lease: Arc<StepLease>,
}

/// The properties of a step that decide which workers may claim it and in which order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lane {
    /// The namespace.
    pub namespace: String,
    /// The queue.
    pub queue: String,
    /// The operation: the name of the handler, and of the policy.
    pub operation: String,
    /// The kind of worker that runs the step.
    pub kind: Kind,
    /// The priority, from 0 (first) to 9 (last).
    pub priority: u8,
}

/// The kind of worker that runs a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A handler with the name of the operation, in a program or behind the API.
    Handler,
    /// Any worker that sends HTTP requests.
    Http,
}

impl Kind {
    /// Returns the number that the stores keep. A number is never reused for another kind.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Handler => 0,
            Self::Http => 1,
        }
    }

    pub(crate) const fn of_code(code: i16) -> Self {
        match code {
            1 => Self::Http,
            _ => Self::Handler,
        }
    }
}

impl Context {
    /// Returns the step's id.
    pub const fn step(&self) -> StepId {
        self.step
    }

    /// Returns the step's namespace, queue, operation and priority.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Returns the number of this attempt; the first is 1. Snoozes and lost workers do not count.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the fencing token, which grows with every claim of the step. If the resource that the handler changes
    /// rejects a token lower than the highest it has seen, a stale worker cannot change it.
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// Returns the idempotency key: the same for every attempt of this step, and different for every other step.
    pub fn idempotency_key(&self) -> String {
        self.step.to_string()
    }

    /// Returns the output of a parent, by the parent's name.
    pub fn input<T: DeserializeOwned>(&self, parent: &str) -> Result<T, Fault> {
        match self.inputs().get(parent) {
            Some(output) => output.read_or_fail(),
            None => Err(Fault::permanent(format!("the step has no parent named `{parent}`"))),
        }
    }

    /// Returns the outputs of all parents, by their names.
    pub fn inputs(&self) -> &BTreeMap<String, Payload> {
        self.inputs.as_deref().unwrap_or(&NO_INPUTS)
    }

    /// Returns the trace of the task, as it was submitted (a W3C `traceparent`).
    pub fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// Waits until the step must stop: its lease was lost, its task was cancelled, or the drain timeout of the
    /// worker's shutdown has expired. A handler that continues after that acts as a stale worker.
    ///
    /// Cancel-safe.
    pub async fn cancelled(&self) {
        self.lease.lost.cancelled().await;
    }

    /// Returns whether the step must stop.
    pub fn is_cancelled(&self) -> bool {
        self.lease.lost.is_cancelled()
    }
}
