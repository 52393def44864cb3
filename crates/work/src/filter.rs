//! Filters that select steps, pages of lists, and actions on the selected steps.

use std::time::Duration;

use crate::{Payload, StepId, StepState, TaskId};

/// Selects the steps that meet every condition given here.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Filter {
    /// In one of these states; if empty, in any state.
    pub states: Vec<StepState>,
    /// Steps of this task.
    pub task: Option<TaskId>,
    /// This one step.
    pub step: Option<StepId>,
    /// In this namespace.
    pub namespace: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this operation; `*` matches any sequence of characters.
    pub operation: Option<String>,
    /// Calling this host.
    pub destination: Option<String>,
    /// With a last failure of this class.
    pub class: Option<String>,
    /// With at least this number of failures.
    pub min_failures: Option<u32>,
    /// With at most this number of failures.
    pub max_failures: Option<u32>,
    /// Submitted at least this long ago.
    pub older_than: Option<Duration>,
    /// Submitted at most this long ago.
    pub newer_than: Option<Duration>,
    /// Ready or running for longer than this.
    pub stale_after: Option<Duration>,
    /// With this text in the step's name or its last message.
    pub text: Option<String>,
    /// With this [token](crate::StepRecord::token): the step has not changed since the caller read its record.
    pub token: Option<u64>,
}

impl Filter {
    /// Selects the steps of one task.
    pub fn task(task: TaskId) -> Self {
        Self { task: Some(task), ..Self::default() }
    }

    /// Selects one step.
    pub fn step(step: StepId) -> Self {
        Self { step: Some(step), ..Self::default() }
    }

    /// Selects the steps in one of these states.
    pub fn states(states: impl IntoIterator<Item = StepState>) -> Self {
        Self { states: states.into_iter().collect(), ..Self::default() }
    }
}

/// One page of a list.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Page {
    /// The maximum number of steps on the page.
    pub limit: u32,
    /// Only steps after this one, which is the last step of the previous page.
    pub after: Option<StepId>,
    /// Whether payloads and outputs are included.
    pub with_payloads: bool,
    /// The maximum number of steps that [a look](crate::Work::look) reads to find matches: this many finished steps,
    /// and this many unfinished ones.
    pub looked_at: u32,
}

impl Page {
    /// The maximum number of steps on one page.
    pub const MOST: u32 = 1000;

    /// The maximum of `looked_at`.
    pub const MOST_LOOKED_AT: u32 = 10_000;

    /// Returns the first page, with at most this number of steps.
    pub fn first(limit: u32) -> Self {
        Self {
            limit: limit.clamp(1, Self::MOST),
            after: None,
            with_payloads: false,
            looked_at: Self::MOST_LOOKED_AT,
        }
    }

    /// Continues after this step.
    #[must_use]
    pub fn after(mut self, step: StepId) -> Self {
        self.after = Some(step);
        self
    }

    /// Limits the number of steps that are read.
    #[must_use]
    pub fn looking_at(mut self, steps: u32) -> Self {
        self.looked_at = steps.clamp(1, Self::MOST_LOOKED_AT);
        self
    }

    /// Includes payloads and outputs.
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

/// An action on the selected steps.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Failed and conflicted steps become ready, and all their attempts are available again.
    Retry,
    /// The tasks of the selected steps are cancelled: all their unfinished steps.
    Cancel,
    /// Failed and conflicted steps are discarded; the steps that depend on them stay blocked.
    Discard,
    /// Conflicted steps become ready, with a new payload if one is given.
    Resolve(Option<Payload>),
}

impl Action {
    /// Returns the word used in output, logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Discard => "discard",
            Self::Resolve(_) => "resolve",
        }
    }
}
