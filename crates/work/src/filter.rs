//! Which steps are meant, and what to do to them.

use std::time::Duration;

use crate::{Payload, StepId, StepState, TaskId};

/// Which steps are meant: those to which everything said here applies.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Filter {
    /// In one of these states; none named means any.
    pub states: Vec<StepState>,
    /// Steps of this task.
    pub task: Option<TaskId>,
    /// This one step.
    pub step: Option<StepId>,
    /// In this namespace.
    pub namespace: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this operation; `*` stands for any run of characters.
    pub operation: Option<String>,
    /// Calling this host.
    pub destination: Option<String>,
    /// Whose last failure was of this class.
    pub class: Option<String>,
    /// That have failed at least so often.
    pub min_failures: Option<u32>,
    /// That have failed at most so often.
    pub max_failures: Option<u32>,
    /// Submitted at least so long ago.
    pub older_than: Option<Duration>,
    /// Submitted at most so long ago.
    pub newer_than: Option<Duration>,
    /// Ready or running for longer than this.
    pub stale_after: Option<Duration>,
    /// With this text in the step's name or its last message.
    pub text: Option<String>,
    /// That had this [token](crate::StepRecord::token) when somebody looked, and have not moved since.
    pub token: Option<u64>,
}

impl Filter {
    /// One task's steps.
    pub fn task(task: TaskId) -> Self {
        Self { task: Some(task), ..Self::default() }
    }

    /// One step.
    pub fn step(step: StepId) -> Self {
        Self { step: Some(step), ..Self::default() }
    }

    /// Steps in one of these states.
    pub fn states(states: impl IntoIterator<Item = StepState>) -> Self {
        Self { states: states.into_iter().collect(), ..Self::default() }
    }
}

/// One page of a list.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Page {
    /// The most steps on it.
    pub limit: u32,
    /// Only steps after this one; the last step of the page before.
    pub after: Option<StepId>,
    /// Whether payloads and outputs are read.
    pub with_payloads: bool,
    /// The most steps that [a look](crate::Work::look) goes through in search of those that match, of those that are over and
    /// of those that are not.
    pub looked_at: u32,
}

impl Page {
    /// The most steps on one page.
    pub const MOST: u32 = 1000;

    /// The most steps that are gone through for it.
    pub const MOST_LOOKED_AT: u32 = 10_000;

    /// The first page of so many steps.
    pub fn first(limit: u32) -> Self {
        Self {
            limit: limit.clamp(1, Self::MOST),
            after: None,
            with_payloads: false,
            looked_at: Self::MOST_LOOKED_AT,
        }
    }

    /// The page after this step.
    #[must_use]
    pub fn after(mut self, step: StepId) -> Self {
        self.after = Some(step);
        self
    }

    /// The same, going through so many steps at most.
    #[must_use]
    pub fn looking_at(mut self, steps: u32) -> Self {
        self.looked_at = steps.clamp(1, Self::MOST_LOOKED_AT);
        self
    }

    /// The same, with payloads and outputs.
    #[must_use]
    pub fn with_payloads(mut self) -> Self {
        self.with_payloads = true;
        self
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::first(100)
    }
}

/// What to do to steps.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Failed and conflicted ones become ready, with all their tries before them.
    Retry,
    /// The tasks of the steps are cancelled: everything of them that is not finished.
    Cancel,
    /// Failed and conflicted ones are given up; what depends on them stays blocked.
    Discard,
    /// Conflicted ones become ready, with another payload if one is given.
    Resolve(Option<Payload>),
}

impl Action {
    /// The word used in output, logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Discard => "discard",
            Self::Resolve(_) => "resolve",
        }
    }
}
