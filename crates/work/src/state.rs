//! The states of steps and tasks.
//!
//! ```text
//! blocked → ready → running → succeeded
//!             ↑        ├→ ready, due later                (a retry, a snooze, a rescue)
//!             │        ├→ conflicted → ready | discarded  (an operator decides)
//!             └────────┴→ failed     → ready | discarded  (kept with every attempt)
//! any live state → cancelled
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The state of a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StepState {
    /// A parent has not succeeded yet.
    Blocked,
    /// The step runs as soon as it is due and a worker is free.
    Ready,
    /// A worker holds the step under a lease.
    Running,
    /// The step has succeeded.
    Succeeded,
    /// The policy permits no further attempt. The step is kept until an operator retries or discards it.
    Failed,
    /// The other side reported a conflict with its state; an operator must decide.
    Conflicted,
    /// An operator discarded the step.
    Discarded,
    /// The task was cancelled.
    Cancelled,
}

impl StepState {
    /// Every state, in the order of a step's lifecycle.
    pub const ALL: [Self; 8] = [
        Self::Blocked,
        Self::Ready,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Conflicted,
        Self::Discarded,
        Self::Cancelled,
    ];

    /// The final states.
    pub const OVER: [Self; 3] = [Self::Succeeded, Self::Discarded, Self::Cancelled];

    /// Returns the word used in output, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Conflicted => "conflicted",
            Self::Discarded => "discarded",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether the step can still run without an operator's action.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Blocked | Self::Ready | Self::Running)
    }

    /// Returns the number that the stores keep. A number is never reused for another state.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Blocked => 0,
            Self::Ready => 1,
            Self::Running => 2,
            Self::Succeeded => 3,
            Self::Failed => 4,
            Self::Conflicted => 5,
            Self::Discarded => 6,
            Self::Cancelled => 7,
        }
    }

    /// Returns the state with this number.
    pub(crate) fn of_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }
}

impl fmt::Display for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for StepState {
    type Err = UnknownState;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.name() == word).ok_or(UnknownState)
    }
}

/// The word is not the name of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown state: expected blocked, ready, running, succeeded, failed, conflicted, discarded or cancelled"
)]
pub struct UnknownState;

/// The state of a task, computed from the states of its steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TaskState {
    /// A step is ready or running.
    Running,
    /// Every step has succeeded.
    Succeeded,
    /// A step has failed, is conflicted or was discarded; the steps that depend on it stay blocked.
    Failed,
    /// The task was cancelled.
    Cancelled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// Computes the state of a task from the states of its steps.
    ///
    /// A step that is ready or running keeps the task running. Otherwise a blocked step depends on a failed step, so
    /// the task has failed.
    pub fn of(steps: impl IntoIterator<Item = StepState>) -> Self {
        let mut state = Self::Succeeded;
        for step in steps {
            match step {
                StepState::Ready | StepState::Running => return Self::Running,
                StepState::Cancelled => state = Self::Cancelled,
                StepState::Succeeded => {}
                _ if state == Self::Cancelled => {}
                _ => state = Self::Failed,
            }
        }
        state
    }

    /// Returns the word used in output, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::str::FromStr for TaskState {
    type Err = UnknownState;

    fn from_str(word: &str) -> Result<Self, UnknownState> {
        Self::ALL.into_iter().find(|state| state.name() == word).ok_or(UnknownState)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for state in StepState::ALL {
            assert_eq!(StepState::of_code(state.code()), Some(state));
            assert_eq!(state.name().parse(), Ok(state));
        }
        assert_eq!(StepState::of_code(99), None);
        for state in TaskState::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert_eq!(StepState::Blocked.to_string(), "blocked");
        let live = StepState::ALL.into_iter().filter(|state| state.is_live()).collect::<Vec<_>>();
        assert_eq!(live, [StepState::Blocked, StepState::Ready, StepState::Running]);
    }

    #[test]
    fn a_task_state_follows_from_its_steps() {
        use StepState::{Blocked, Cancelled, Discarded, Failed, Ready, Running, Succeeded};
        assert_eq!(TaskState::of([Succeeded, Succeeded]), TaskState::Succeeded);
        assert_eq!(TaskState::of([Failed, Blocked, Running]), TaskState::Running);
        assert_eq!(TaskState::of([Blocked, Ready]), TaskState::Running);
        assert_eq!(TaskState::of([Succeeded, Failed, Blocked]), TaskState::Failed);
        assert_eq!(TaskState::of([Discarded, Succeeded]), TaskState::Failed);
        assert_eq!(TaskState::of([Failed, Cancelled, Succeeded]), TaskState::Cancelled);
        assert_eq!(TaskState::of([Cancelled, Failed]), TaskState::Cancelled);
    }
}
