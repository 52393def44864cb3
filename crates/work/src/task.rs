//! Tasks and their steps, as they are submitted.

mod graph;
mod invalid;

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

pub(crate) use graph::graph;
pub use invalid::InvalidTask;

use crate::{Fingerprint, Kind, Payload};

/// A task: one step, or a graph of steps.
///
/// ```
/// use holdoff_work::{Step, Task};
///
/// let mail = Task::new("mail.send").json(&["ada@example.com", "Hello"]).dedup("welcome-ada");
///
/// let order = Task::graph()
///     .step("charge", Step::new("card.charge").json(&12.5))
///     .step("pack", Step::new("parcel.pack"))
///     .step("ship", Step::new("parcel.ship").after("charge").after("pack"));
/// # let _ = (mail, order);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Task {
    pub(crate) namespace: Option<String>,
    pub(crate) dedup: Option<String>,
    pub(crate) dedup_retention: Option<Duration>,
    pub(crate) trace: Option<String>,
    pub(crate) mark: Option<Fingerprint>,
    pub(crate) steps: Vec<Step>,
}

/// A step: an operation, its payload, and the earliest time at which it may run.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) name: Option<String>,
    pub(crate) operation: String,
    pub(crate) queue: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) priority: u8,
    pub(crate) delay: Duration,
    pub(crate) policy: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) payload: Payload,
    pub(crate) after: Vec<String>,
    /// The first problem found by the builder; the submission reports it.
    pub(crate) problem: Option<InvalidTask>,
}

impl Task {
    /// The queue of a step that names none.
    pub const DEFAULT_QUEUE: &'static str = "default";

    /// Creates a task with one step that runs this operation.
    pub fn new(operation: impl Into<String>) -> Self {
        Self::of(Step::new(operation))
    }

    /// Creates a task with this one step.
    pub fn of(step: Step) -> Self {
        Self { steps: vec![step], ..Self::default() }
    }

    /// Creates a task with one step that sends this request. The operation names it in policies, metrics and lists.
    #[cfg(feature = "http")]
    pub fn http(operation: impl Into<String>, request: &crate::HttpStep) -> Self {
        Self::of(Step::http(operation, request))
    }

    /// Creates a task without steps; add them with [`Task::step`].
    pub fn graph() -> Self {
        Self::default()
    }

    /// Adds a step with this name. Other steps can run [after](Step::after) it, and read its output by the name.
    #[must_use]
    pub fn step(mut self, name: impl Into<String>, step: Step) -> Self {
        self.steps.push(Step { name: Some(name.into()), ..step });
        self
    }

    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Deduplicates the task: a later task with the same key in the same namespace is the same task, as long as this
    /// task is live, and for the retention after its submission.
    #[must_use]
    pub fn dedup(mut self, key: impl Into<String>) -> Self {
        self.dedup = Some(key.into());
        self
    }

    /// Returns whether the task has a deduplication key.
    pub const fn has_dedup(&self) -> bool {
        self.dedup.is_some()
    }

    /// Sets the time that the key is remembered, instead of the file's `dedup_retention`.
    #[must_use]
    pub fn dedup_retention(mut self, retention: Duration) -> Self {
        self.dedup_retention = Some(retention);
        self
    }

    /// Stores a fingerprint of the request in the task's id. If a caller repeats a request under the same key, it can
    /// check with [`TaskId::bears`](crate::TaskId::bears) whether the request was the same, as long as the key is
    /// remembered. Different keys need different fingerprints.
    #[must_use]
    pub fn mark(mut self, mark: Fingerprint) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Sets the trace of the task: a W3C `traceparent`, which every step receives.
    #[must_use]
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// Sets the payload of the last step, as JSON.
    #[must_use]
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.change_last(|step| step.json(value))
    }

    /// Sets the payload of the last step, as bytes.
    #[must_use]
    pub fn bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.change_last(|step| step.bytes(bytes))
    }

    /// Sets the queue of the last step.
    #[must_use]
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.change_last(|step| step.queue(queue))
    }

    /// Sets the priority of the last step.
    #[must_use]
    pub fn priority(self, priority: u8) -> Self {
        self.change_last(|step| step.priority(priority))
    }

    /// Sets the delay of the last step.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        self.change_last(|step| step.delay(delay))
    }

    /// Sets the policy of the last step.
    #[must_use]
    pub fn policy(self, policy: impl Into<String>) -> Self {
        self.change_last(|step| step.policy(policy))
    }

    fn change_last(mut self, change: impl FnOnce(Step) -> Step) -> Self {
        if let Some(last) = self.steps.pop() {
            self.steps.push(change(last));
        }
        self
    }
}

impl Step {
    /// Creates a step that runs this operation.
    pub fn new(operation: impl Into<String>) -> Self {
        Self {
            name: None,
            operation: operation.into(),
            queue: None,
            kind: Kind::Handler,
            priority: Self::NORMAL,
            delay: Duration::ZERO,
            policy: None,
            destination: None,
            payload: Payload::empty(),
            after: Vec::new(),
            problem: None,
        }
    }

    /// Creates a step that sends this request. The operation names it in policies, metrics and lists.
    #[cfg(feature = "http")]
    pub fn http(operation: impl Into<String>, request: &crate::HttpStep) -> Self {
        let mut step = Self { kind: Kind::Http, ..Self::new(operation) };
        match request.payload() {
            Ok(payload) => {
                step.payload = payload;
                step.destination = request.destination().ok();
            }
            Err(wrong) => {
                step.problem =
                    Some(InvalidTask::Request { step: step.operation.clone(), why: wrong.to_string() });
            }
        }
        step
    }

    /// The priority of a step that names none.
    pub const NORMAL: u8 = 5;

    /// The lowest priority.
    pub const LOWEST: u8 = 9;

    /// Sets the payload, as JSON.
    #[must_use]
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        match Payload::json(value) {
            Ok(payload) => self.payload = payload,
            Err(error) => {
                self.problem =
                    Some(InvalidTask::NotJson { operation: self.operation.clone(), why: error.to_string() });
            }
        }
        self
    }

    /// Sets the payload, as bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.payload = Payload::bytes(bytes);
        self
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// Sets the queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the priority, from 0 (first) to 9 (last).
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the delay after the submission, or after the success of the last parent.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the policy, instead of the operation's.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<String>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Makes the step run after the step with this name has succeeded.
    #[must_use]
    pub fn after(mut self, parent: impl Into<String>) -> Self {
        self.after.push(parent.into());
        self
    }

    /// Returns the name of the step in messages.
    pub(crate) fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.operation)
    }
}
