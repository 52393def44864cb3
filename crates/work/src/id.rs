//! Identifiers of tasks and steps.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Fingerprint;

/// The id of a task: a UUID of version 7, so that later tasks sort after earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(Uuid);

impl TaskId {
    /// Creates a new, unique id.
    pub(crate) fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// Creates a new id that ends with 62 bits of a fingerprint. In a UUID of version 7 the last 62 bits are free to
    /// choose.
    pub(crate) fn marked(mark: Fingerprint) -> Self {
        let mut bytes = *Uuid::now_v7().as_bytes();
        let (_, end) = bytes.split_at_mut(8);
        for (byte, mark) in end.iter_mut().zip(mark.as_bytes()) {
            *byte = *mark;
        }
        if let Some(first) = end.first_mut() {
            *first = *first & 0x3f | 0x80;
        }
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns whether the task was [created](crate::Task::mark) with this fingerprint in its id.
    pub fn bears(&self, mark: Fingerprint) -> bool {
        let ends = self.0.as_bytes().iter().skip(8).zip(mark.as_bytes()).enumerate();
        ends.fold(true, |same, (place, (byte, mark))| {
            let free = if place == 0 { 0x3f } else { 0xff };
            same && byte & free == mark & free
        })
    }

    /// Returns the id with this UUID.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// Returns the UUID.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }

    /// Returns the id of one of the task's steps; the first is 0.
    pub const fn step(self, number: i32) -> StepId {
        StepId { task: self, number }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self).map_err(|_| NotAnId { text: text.to_owned() })
    }
}

/// The id of a step: its task and its number in the task, written `TASK/NUMBER`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId {
    /// The task of the step.
    pub task: TaskId,
    /// The number in the task; the first is 0.
    pub number: i32,
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.task, self.number)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for StepId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAnId { text: text.to_owned() };
        let (task, number) = text.split_once('/').ok_or_else(wrong)?;
        let number = number.parse().ok().filter(|number| *number >= 0).ok_or_else(wrong)?;
        Ok(task.parse::<TaskId>().map_err(|_| wrong())?.step(number))
    }
}

impl Serialize for StepId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is neither the id of a task nor of a step.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` names no task or step: expected a UUID for a task, UUID/NUMBER for a step")]
pub struct NotAnId {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_borne_and_known() {
        let [mark, other] = ["a", "b"].map(|text| Fingerprint::of([text]));
        let task = TaskId::marked(mark);
        assert!(task.bears(mark) && !task.bears(other) && !TaskId::fresh().bears(mark));
        assert_eq!((task.0.get_version_num(), task.0.get_variant()), (7, uuid::Variant::RFC4122));
        assert!(task > TaskId::from_uuid(Uuid::nil()) && TaskId::marked(mark).bears(mark));
    }

    #[test]
    fn names_read_back() {
        let step = TaskId::fresh().step(17);
        assert_eq!(step.to_string().parse(), Ok(step));
        assert_eq!(step.task.to_string().parse(), Ok(step.task));
        assert!("nonsense".parse::<TaskId>().is_err());
        assert!(step.task.to_string().parse::<StepId>().is_err());
        assert!(format!("{}/-1", step.task).parse::<StepId>().is_err());
    }
}
