//! What is submitted: a task, made of steps.

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

/// A step: what is to be done, and when at the earliest.
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
    /// What went wrong while it was put together; said when it is submitted.
    pub(crate) problem: Option<InvalidTask>,
}

impl Task {
    /// The queue of whoever names none.
    pub const DEFAULT_QUEUE: &'static str = "default";

    /// A task of one step that runs this operation.
    pub fn new(operation: impl Into<String>) -> Self {
        Self::of(Step::new(operation))
    }

    /// A task of this one step.
    pub fn of(step: Step) -> Self {
        Self { steps: vec![step], ..Self::default() }
    }

    /// A task of one step that makes this request; the operation names it in policies, metrics and lists.
    #[cfg(feature = "http")]
    pub fn http(operation: impl Into<String>, request: &crate::HttpStep) -> Self {
        Self::of(Step::http(operation, request))
    }

    /// A task without steps yet; add them with [`Task::step`].
    pub fn graph() -> Self {
        Self::default()
    }

    /// Adds a step by this name. Others come [after](Step::after) it, and find its output under the name.
    #[must_use]
    pub fn step(mut self, name: impl Into<String>, step: Step) -> Self {
        self.steps.push(Step { name: Some(name.into()), ..step });
        self
    }

    /// In this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Taken in once: a later task with the same key in the same namespace is the same task, as long as this
    /// one lives and for the retention after it was submitted.
    #[must_use]
    pub fn dedup(mut self, key: impl Into<String>) -> Self {
        self.dedup = Some(key.into());
        self
    }

    /// Whether it has a key.
    pub const fn has_dedup(&self) -> bool {
        self.dedup.is_some()
    }

    /// How long the key is remembered, instead of the file's `dedup_retention`.
    #[must_use]
    pub fn dedup_retention(mut self, retention: Duration) -> Self {
        self.dedup_retention = Some(retention);
        self
    }

    /// Marks the task's id with what was asked for, so that whoever asks again under the same key can tell whether it
    /// was the same, by [`TaskId::bears`](crate::TaskId::bears), for as long as the key is remembered. The mark must be
    /// another for another key.
    #[must_use]
    pub fn mark(mut self, mark: Fingerprint) -> Self {
        self.mark = Some(mark);
        self
    }

    /// The trace it belongs to: a W3C `traceparent`, handed on to every step.
    #[must_use]
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// The payload of its last step, as JSON.
    #[must_use]
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.change_last(|step| step.json(value))
    }

    /// The payload of its last step, as bytes.
    #[must_use]
    pub fn bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.change_last(|step| step.bytes(bytes))
    }

    /// The queue of its last step.
    #[must_use]
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.change_last(|step| step.queue(queue))
    }

    /// The priority of its last step.
    #[must_use]
    pub fn priority(self, priority: u8) -> Self {
        self.change_last(|step| step.priority(priority))
    }

    /// The delay of its last step.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        self.change_last(|step| step.delay(delay))
    }

    /// The policy of its last step.
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
    /// A step that runs this operation.
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

    /// A step that makes this request; the operation names it in policies, metrics and lists.
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

    /// The priority of whoever names none.
    pub const NORMAL: u8 = 5;

    /// The priority that comes last.
    pub const LOWEST: u8 = 9;

    /// Its payload, as JSON.
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

    /// Its payload, as bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.payload = Payload::bytes(bytes);
        self
    }

    /// Its payload.
    #[must_use]
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// In this queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// From 0, which goes first, to 9.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Not before so much time has passed since it was submitted, or since its last parent succeeded.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Under this policy, instead of its operation's.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<String>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Not before the step of this name has succeeded.
    #[must_use]
    pub fn after(mut self, parent: impl Into<String>) -> Self {
        self.after.push(parent.into());
        self
    }

    /// The name to call it by in messages.
    pub(crate) fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.operation)
    }
}
