//! Tasks and their steps, as they are submitted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

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
    pub(crate) request_fingerprint: Option<Fingerprint>,
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
    pub(crate) expires_in: Option<Duration>,
    pub(crate) policy: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) payload: Payload,
    pub(crate) after: Vec<String>,
    /// The timeout that an HTTP step sets.
    pub(crate) timeout: Option<Duration>,
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
    /// check with [`TaskId::has_fingerprint`](crate::TaskId::has_fingerprint) whether the request was the same, as long as the key is
    /// remembered.
    #[must_use]
    pub fn request_fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.request_fingerprint = Some(fingerprint);
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

    /// Sets the start-by time of the last step.
    #[must_use]
    pub fn expires_in(self, time: Duration) -> Self {
        self.change_last(|step| step.expires_in(time))
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
            expires_in: None,
            policy: None,
            destination: None,
            payload: Payload::empty(),
            after: Vec::new(),
            timeout: None,
            problem: None,
        }
    }

    /// Creates a step that sends this request. The operation names it in policies, metrics and lists.
    #[cfg(feature = "http")]
    pub fn http(operation: impl Into<String>, request: &crate::HttpStep) -> Self {
        let mut step = Self { kind: Kind::Http, ..Self::new(operation) };
        match request.payload_and_destination() {
            Ok((payload, destination)) => {
                step.payload = payload;
                step.destination = Some(destination);
                step.timeout = request.timeout;
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

    /// Sets the start-by time, counted from the submission: no attempt begins later. A step that is ready then fails; one
    /// that waits for others fails when they have succeeded. An operator who retries the step removes the limit.
    #[must_use]
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
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

/// The dependencies between steps, by number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Graph {
    /// The edges from parent to child, each once.
    pub(crate) edges: Vec<(usize, usize)>,
    /// The number of parents of each step.
    pub(crate) parents: Vec<i32>,
    /// The number of children of each step.
    pub(crate) children: Vec<i32>,
}

/// Numbers the steps in their order, and refuses cycles.
pub(crate) fn graph(steps: &[Step]) -> Result<Graph, InvalidTask> {
    let names = numbers(steps)?;
    let mut parents = Vec::with_capacity(steps.len());
    for step in steps {
        let mut mine = BTreeSet::new();
        for parent in &step.after {
            let number = names.get(parent.as_str()).ok_or_else(|| InvalidTask::NoSuchParent {
                step: step.shown().to_owned(),
                parent: parent.clone(),
            })?;
            mine.insert(*number);
        }
        parents.push(mine);
    }
    if let Some(circle) = circle(&parents) {
        let name = |number: &usize| steps.get(*number).map_or("?", Step::shown);
        let path: Vec<_> = circle.iter().map(name).collect();
        return Err(InvalidTask::Cycle { path: path.join(" → ") });
    }
    Ok(count(&parents))
}

fn numbers(steps: &[Step]) -> Result<BTreeMap<&str, usize>, InvalidTask> {
    let mut names = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        let Some(name) = step.name.as_deref() else { continue };
        if names.insert(name, number).is_some() {
            return Err(InvalidTask::SameName { name: name.to_owned() });
        }
    }
    Ok(names)
}

fn count(parents: &[BTreeSet<usize>]) -> Graph {
    let mut graph = Graph { children: vec![0; parents.len()], ..Graph::default() };
    for (child, mine) in parents.iter().enumerate() {
        graph.parents.push(i32::try_from(mine.len()).unwrap_or(i32::MAX));
        for parent in mine {
            graph.edges.push((*parent, child));
            if let Some(children) = graph.children.get_mut(*parent) {
                *children += 1;
            }
        }
    }
    graph
}

/// Returns a cycle, from its first step back to itself, if there is one.
///
/// Removes the steps whose parents are all removed, until none is left to remove. Every remaining step has a
/// remaining parent, so a walk from parent to parent must return to a step that it has visited.
fn circle(parents: &[BTreeSet<usize>]) -> Option<Vec<usize>> {
    let mut waiting: Vec<usize> = parents.iter().map(BTreeSet::len).collect();
    let mut children = vec![Vec::new(); parents.len()];
    for (child, mine) in parents.iter().enumerate() {
        for parent in mine {
            children.get_mut(*parent)?.push(child);
        }
    }
    let mut free: Vec<usize> = (0..parents.len()).filter(|step| waiting.get(*step) == Some(&0)).collect();
    let mut left: BTreeSet<usize> = (0..parents.len()).collect();
    while let Some(step) = free.pop() {
        left.remove(&step);
        for child in children.get(step)? {
            let waits = waiting.get_mut(*child)?;
            *waits -= 1;
            if *waits == 0 {
                free.push(*child);
            }
        }
    }
    let mut path = vec![*left.first()?];
    loop {
        let here = *path.last()?;
        let next = *parents.get(here)?.iter().find(|parent| left.contains(parent))?;
        if let Some(start) = path.iter().position(|step| *step == next) {
            path.push(next);
            path.drain(..start);
            // The walk goes from child to parent; the message shows the path from parent to child.
            path.reverse();
            return Some(path);
        }
        path.push(next);
    }
}

/// The reason why a task is not accepted. Nothing was stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTask {
    /// The task has no steps.
    #[error("the task has no steps: add at least one")]
    NoSteps,
    /// The task has too many steps.
    #[error("the task has {count} steps, and the limit is {limit} (work.max_steps)")]
    TooManySteps {
        /// The number of its steps.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The task needs a new lane, and the limit is reached. A lane is a combination of namespace, queue, operation,
    /// kind and priority.
    #[error(
        "{lane} is a new combination of names, and the limit of {limit} combinations is reached ({setting}): use existing names, or raise the limit"
    )]
    TooManyLanes {
        /// A description of the lane.
        lane: Box<str>,
        /// The limit.
        limit: u64,
        /// The setting: the limit for the namespace, or for the store.
        setting: &'static str,
    },
    /// The timeout of an HTTP step exceeds the limit.
    #[error("step `{step}` has a timeout of {timeout:?}, and the limit is {limit:?} (http.max_timeout)")]
    HttpTimeout {
        /// The step.
        step: String,
        /// Its timeout.
        timeout: Duration,
        /// The limit.
        limit: Duration,
    },
    /// A name is invalid.
    #[error("{what} {name:?} is invalid: expected 1 to 200 characters without control or bidi characters")]
    BadName {
        /// The kind of the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The namespace is reserved for notifications.
    #[error("namespace `{namespace}` is reserved for notifications: submit to another namespace")]
    Reserved {
        /// The namespace.
        namespace: String,
    },
    /// Two steps have the same name.
    #[error("two steps are named `{name}`: give each step a unique name")]
    SameName {
        /// The name.
        name: String,
    },
    /// A parent does not exist.
    #[error("step `{step}` runs after `{parent}`, but the task has no step of that name")]
    NoSuchParent {
        /// The step.
        step: String,
        /// The name of the missing parent.
        parent: String,
    },
    /// The steps depend on each other in a cycle.
    #[error("the steps depend on each other in a cycle: {path}")]
    Cycle {
        /// The cycle: `a → b → a`.
        path: String,
    },
    /// A payload exceeds the size limit.
    #[error("the payload of step `{step}` has {size} bytes, and the limit is {limit} (work.max_payload)")]
    PayloadTooLarge {
        /// The step.
        step: String,
        /// The size of the payload, in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A payload cannot be serialised as JSON.
    #[error("the payload of `{operation}` cannot be serialized as JSON: {why}")]
    NotJson {
        /// The operation.
        operation: String,
        /// The error of serde.
        why: String,
    },
    /// A policy is not defined.
    #[error(
        "step `{step}` names policy `{policy}`, which is not defined{}",
        nearest.as_ref().map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
    )]
    NoSuchPolicy {
        /// The step.
        step: String,
        /// The policy.
        policy: String,
        /// The defined policy whose name is most similar, if any is similar enough.
        nearest: Option<Box<str>>,
    },
    /// A priority is out of range.
    #[error("step `{step}` has priority {priority}: expected 0 (claimed first) to 9")]
    Priority {
        /// The step.
        step: String,
        /// The priority.
        priority: u8,
    },
    /// A delay is too long.
    #[error("{what} is {delay:?}: expected at most 365 days")]
    TooLong {
        /// The name of the delay.
        what: &'static str,
        /// The length of the delay.
        delay: Duration,
    },
    /// The step would expire before it is due.
    #[error(
        "step `{step}` expires {expires_in:?} after its submission, and its delay is {delay:?}: expected a longer time"
    )]
    ExpiresTooSoon {
        /// The step.
        step: String,
        /// The time after which it expires.
        expires_in: Duration,
        /// Its delay.
        delay: Duration,
    },
    /// An HTTP request is invalid.
    #[error("step `{step}` has an invalid HTTP request: {why}")]
    Request {
        /// The step.
        step: String,
        /// The reason.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, after: &[&str]) -> Step {
        let mut step = Step::new("op");
        step.name = Some(name.to_owned());
        step.after = after.iter().map(|parent| (*parent).to_owned()).collect();
        step
    }

    #[test]
    fn a_diamond_is_counted() {
        let steps = [step("d", &["b", "c", "b"]), step("b", &["a"]), step("c", &["a"]), step("a", &[])];
        let graph = graph(&steps).unwrap();
        assert_eq!(graph.parents, [2, 1, 1, 0]);
        assert_eq!(graph.children, [0, 1, 1, 2]);
        assert_eq!(graph.edges.len(), 4);
    }

    #[test]
    fn a_cycle_is_rejected_with_its_path() {
        let steps = [step("a", &["c"]), step("b", &["a"]), step("c", &["b"]), step("d", &["c"])];
        assert_eq!(graph(&steps), Err(InvalidTask::Cycle { path: "a → b → c → a".to_owned() }));
        let itself = [step("a", &["a"])];
        assert_eq!(graph(&itself), Err(InvalidTask::Cycle { path: "a → a".to_owned() }));
    }

    #[test]
    fn unknown_parents_and_duplicate_names_are_rejected() {
        let missing = [step("a", &["x"])];
        assert!(matches!(graph(&missing), Err(InvalidTask::NoSuchParent { .. })));
        let twice = [step("a", &[]), step("a", &[])];
        assert!(matches!(graph(&twice), Err(InvalidTask::SameName { .. })));
    }
}
