//! Why a task cannot be taken in.

use std::time::Duration;

/// Why a task cannot be taken in. Nothing was stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTask {
    /// A task without steps.
    #[error("the task has no steps: add one")]
    NoSteps,
    /// Too many steps.
    #[error("the task has {count} steps, and may have {limit} (work.max_steps)")]
    TooManySteps {
        /// How many it has.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// It would need a lane that may not be made: namespace, queue, operation, kind and priority together are one.
    #[error(
        "{lane} would be a new lane, and there are {limit} already, as many as may be ({setting}): use names that are there, or raise the limit"
    )]
    TooManyLanes {
        /// What it would be for.
        lane: Box<str>,
        /// How many there may be.
        limit: u64,
        /// What limits it: the lanes of the namespace, or all of them.
        setting: &'static str,
    },
    /// A name that cannot be used.
    #[error("{what} {name:?} cannot be used: expected 1 to 200 characters, none of them a control character")]
    BadName {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A namespace in which nobody submits.
    #[error("namespace `{namespace}` is for notifications alone: submit to another")]
    Reserved {
        /// The namespace.
        namespace: String,
    },
    /// Two steps of one name.
    #[error("two steps are called `{name}`: each needs a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// A parent that is not there.
    #[error("step `{step}` comes after `{parent}`, but there is no such step")]
    NoSuchParent {
        /// The step.
        step: String,
        /// What it comes after.
        parent: String,
    },
    /// Steps that wait for each other.
    #[error("the steps wait for each other in a circle: {path}")]
    Cycle {
        /// The circle: `a → b → a`.
        path: String,
    },
    /// A payload beyond the limit.
    #[error("the payload of step `{step}` has {size} bytes, and may have {limit} (work.max_payload)")]
    PayloadTooLarge {
        /// The step.
        step: String,
        /// Its size.
        size: usize,
        /// The largest size.
        limit: usize,
    },
    /// A payload that is no JSON.
    #[error("the payload of `{operation}` cannot be written as JSON: {why}")]
    NotJson {
        /// The operation.
        operation: String,
        /// What serde said.
        why: String,
    },
    /// A policy nobody has defined.
    #[error("step `{step}` asks for policy `{policy}`, which is not defined")]
    NoSuchPolicy {
        /// The step.
        step: String,
        /// The policy.
        policy: String,
    },
    /// A priority that is none.
    #[error("step `{step}` has priority {priority}: expected 0, which goes first, to 9")]
    Priority {
        /// The step.
        step: String,
        /// The priority.
        priority: u8,
    },
    /// A delay beyond any sense.
    #[error("{what} is {delay:?}: expected at most 365 days")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// How long it is.
        delay: Duration,
    },
    /// A request that cannot be made.
    #[error("step `{step}` is no request that can be made: {why}")]
    Request {
        /// The step.
        step: String,
        /// What is wrong with it.
        why: String,
    },
}
