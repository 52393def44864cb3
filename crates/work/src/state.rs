//! What a step or a task is doing.
//!
//! ```text
//! blocked → ready → running → succeeded
//!             ↑        ├→ ready, due later                (a retry, a snooze, a rescue)
//!             │        ├→ conflicted → ready | discarded  (somebody must decide)
//!             └────────┴→ failed     → ready | discarded  (kept with every attempt)
//! any live state → cancelled
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a step is doing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StepState {
    /// A parent has not succeeded yet.
    Blocked,
    /// It runs as soon as it is due and a worker is free.
    Ready,
    /// A worker has it under a lease.
    Running,
    /// It is done.
    Succeeded,
    /// The policy gave up; it is kept until somebody retries or discards it.
    Failed,
    /// The other side said that it contradicts what is there; somebody must decide.
    Conflicted,
    /// Somebody gave it up.
    Discarded,
    /// Its task was cancelled.
    Cancelled,
}

impl StepState {
    /// Every state, in the order of a step's life.
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

    /// Those from which there is no way back.
    pub const OVER: [Self; 3] = [Self::Succeeded, Self::Discarded, Self::Cancelled];

    /// The word used in output, logs and metrics.
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

    /// Whether it is still going to do something by itself.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Blocked | Self::Ready | Self::Running)
    }

    /// The number the stores keep. A number is never given to another state.
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

    /// The state of this number.
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

/// The word names no state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not a state; the states are blocked, ready, running, succeeded, failed, conflicted, discarded and cancelled"
)]
pub struct UnknownState;

/// What a task is doing: what its steps say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TaskState {
    /// A step is live.
    Running,
    /// Every step has succeeded.
    Succeeded,
    /// A step has failed, is in conflict or was discarded; what depends on it stays blocked.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// The state of a task with steps in these states.
    ///
    /// A step that is ready or running keeps the task running. Otherwise a blocked step waits for one that has
    /// failed, so the task has failed.
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

    /// The word used in output, logs and metrics.
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
    fn codes_and_words_read_back() {
        for state in StepState::ALL {
            assert_eq!(StepState::of_code(state.code()), Some(state));
            assert_eq!(state.name().parse(), Ok(state));
        }
        assert_eq!(StepState::of_code(99), None);
    }

    #[test]
    fn a_task_is_what_its_steps_say() {
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
