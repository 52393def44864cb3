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

/// The first byte of an id that may contain a part of a fingerprint.
const FINGERPRINT_START: usize = 12;

impl TaskId {
    /// Creates a new, unique id.
    pub(crate) fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// Creates a new, unique id that ends with the first 32 bits of a fingerprint.
    ///
    /// The 42 bits after the time keep ids apart that are created in one millisecond: a UUID of version 7 counts in
    /// them. The last 32 bits are random and free to choose.
    pub(crate) fn with_fingerprint(fingerprint: Fingerprint) -> Self {
        let mut bytes = *Uuid::now_v7().as_bytes();
        for (byte, part) in bytes.iter_mut().skip(FINGERPRINT_START).zip(fingerprint.as_bytes()) {
            *byte = *part;
        }
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns whether the task was [created](crate::Task::request_fingerprint) with this fingerprint in its id. Another
    /// fingerprint, or none, passes with a probability of one in four billion.
    pub fn has_fingerprint(&self, fingerprint: Fingerprint) -> bool {
        self.0
            .as_bytes()
            .iter()
            .skip(FINGERPRINT_START)
            .zip(fingerprint.as_bytes())
            .all(|(byte, part)| byte == part)
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
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self).map_err(|_| ParseIdError { text: text.to_owned() })
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
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseIdError { text: text.to_owned() };
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
#[error("`{text}` is not an id: expected UUID for a task, or UUID/NUMBER for a step")]
pub struct ParseIdError {
    text: String,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_fingerprint_in_an_id_is_recognised() {
        let [fingerprint, other] = ["a", "b"].map(|text| Fingerprint::of([text]));
        let task = TaskId::with_fingerprint(fingerprint);
        assert!(
            task.has_fingerprint(fingerprint)
                && !task.has_fingerprint(other)
                && !TaskId::fresh().has_fingerprint(fingerprint)
        );
        assert_eq!((task.0.get_version_num(), task.0.get_variant()), (7, uuid::Variant::RFC4122));
        assert!(
            task > TaskId::from_uuid(Uuid::nil())
                && TaskId::with_fingerprint(fingerprint).has_fingerprint(fingerprint)
        );
    }

    #[test]
    fn ids_with_one_fingerprint_are_unique() {
        let fingerprint = Fingerprint::of(["a"]);
        let ids: HashSet<_> = (0..10_000).map(|_| TaskId::with_fingerprint(fingerprint)).collect();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn ids_round_trip() {
        let step = TaskId::fresh().step(17);
        assert_eq!(step.to_string().parse(), Ok(step));
        assert_eq!(step.task.to_string().parse(), Ok(step.task));
        assert!("nonsense".parse::<TaskId>().is_err());
        assert!(step.task.to_string().parse::<StepId>().is_err());
        assert!(format!("{}/-1", step.task).parse::<StepId>().is_err());
    }
}
