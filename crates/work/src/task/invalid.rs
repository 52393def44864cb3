//! The reasons why a task is not accepted.

use std::time::Duration;

/// The reason why a task is not accepted. Nothing was stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTask {
    /// The task has no steps.
    #[error("the task has no steps: add one")]
    NoSteps,
    /// The task has too many steps.
    #[error("the task has {count} steps, and may have {limit} (work.max_steps)")]
    TooManySteps {
        /// The number of its steps.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The task needs a new lane, and the limit is reached. A lane is a combination of namespace, queue, operation,
    /// kind and priority.
    #[error(
        "{lane} would be a new lane, and there are {limit} already, as many as may be ({setting}): use names that are there, or raise the limit"
    )]
    TooManyLanes {
        /// A description of the lane.
        lane: Box<str>,
        /// The limit.
        limit: u64,
        /// The setting: the limit for the namespace, or for the store.
        setting: &'static str,
    },
    /// A name is invalid.
    #[error("{what} {name:?} cannot be used: expected 1 to 200 characters, none of them a control character")]
    BadName {
        /// The kind of the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The namespace is reserved for notifications.
    #[error("namespace `{namespace}` is for notifications alone: submit to another")]
    Reserved {
        /// The namespace.
        namespace: String,
    },
    /// Two steps have the same name.
    #[error("two steps are called `{name}`: each needs a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// A parent does not exist.
    #[error("step `{step}` comes after `{parent}`, but there is no such step")]
    NoSuchParent {
        /// The step.
        step: String,
        /// The name of the missing parent.
        parent: String,
    },
    /// The steps depend on each other in a cycle.
    #[error("the steps wait for each other in a circle: {path}")]
    Cycle {
        /// The cycle: `a → b → a`.
        path: String,
    },
    /// A payload exceeds the size limit.
    #[error("the payload of step `{step}` has {size} bytes, and may have {limit} (work.max_payload)")]
    PayloadTooLarge {
        /// The step.
        step: String,
        /// The size of the payload, in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A payload cannot be serialised as JSON.
    #[error("the payload of `{operation}` cannot be written as JSON: {why}")]
    NotJson {
        /// The operation.
        operation: String,
        /// The error of serde.
        why: String,
    },
    /// A policy is not defined.
    #[error("step `{step}` asks for policy `{policy}`, which is not defined")]
    NoSuchPolicy {
        /// The step.
        step: String,
        /// The policy.
        policy: String,
    },
    /// A priority is out of range.
    #[error("step `{step}` has priority {priority}: expected 0, which goes first, to 9")]
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
    /// An HTTP request is invalid.
    #[error("step `{step}` is no request that can be made: {why}")]
    Request {
        /// The step.
        step: String,
        /// The reason.
        why: String,
    },
}
