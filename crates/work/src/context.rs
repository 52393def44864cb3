//! What a handler knows about the step it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::worker::Hold;
use crate::{Fault, Payload, StepId};
use serde::de::DeserializeOwned;

/// Most steps have no parents.
static NO_INPUTS: BTreeMap<String, Payload> = BTreeMap::new();

/// What a handler knows about the step it runs.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) step: StepId,
    pub(crate) lane: Arc<Lane>,
    pub(crate) attempt: u32,
    pub(crate) token: u64,
    pub(crate) has_children: bool,
    /// When it was claimed, by this process's clock.
    pub(crate) since: std::time::Duration,
    pub(crate) inputs: Option<Arc<BTreeMap<String, Payload>>>,
    pub(crate) trace: Option<Arc<str>>,
    pub(crate) hold: Arc<Hold>,
}

/// The way to a worker that a step takes: everything that decides who may claim it, and when.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lane {
    /// The namespace.
    pub namespace: String,
    /// The queue.
    pub queue: String,
    /// The operation: the handler's name, and the policy's.
    pub operation: String,
    /// Who runs it.
    pub kind: Kind,
    /// From 0, which goes first, to 9.
    pub priority: u8,
}

/// Who runs a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A handler of its operation's name, in a program or behind the API.
    Handler,
    /// Any worker that makes HTTP requests.
    Http,
}

impl Kind {
    /// The number the stores keep. A number is never given to another kind.
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
    /// The step.
    pub const fn step(&self) -> StepId {
        self.step
    }

    /// Its namespace, queue, operation and priority.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Which attempt this is; the first is 1. Snoozes and lost workers do not count.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The fencing token: it grows with every claim of the step. Whatever the handler changes should refuse a
    /// token lower than the highest it has seen, and then no stale worker can do harm.
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// The same for every attempt of this step, and for no other step: what other systems know as an
    /// idempotency key.
    pub fn idempotency_key(&self) -> String {
        self.step.to_string()
    }

    /// The output of a parent, by the parent's name.
    pub fn input<T: DeserializeOwned>(&self, parent: &str) -> Result<T, Fault> {
        match self.inputs().get(parent) {
            Some(output) => output.read_or_fail(),
            None => Err(Fault::permanent(format!("the step has no parent `{parent}`"))),
        }
    }

    /// The outputs of all parents, by their names.
    pub fn inputs(&self) -> &BTreeMap<String, Payload> {
        self.inputs.as_deref().unwrap_or(&NO_INPUTS)
    }

    /// The trace this task belongs to, as it was submitted (a W3C `traceparent`).
    pub fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// Waits until the step is to be stopped: its lease was lost, its task was cancelled, or the worker's
    /// patience at shutdown is over. What is done after that is done by a stale worker.
    pub async fn cancelled(&self) {
        self.hold.lost.cancelled().await;
    }

    /// Whether the step is to be stopped.
    pub fn is_cancelled(&self) -> bool {
        self.hold.lost.is_cancelled()
    }
}
