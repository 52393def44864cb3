//! Signals: something happened, perhaps for the hundredth time, and one task is to deal with it.
//!
//! ```text
//!          no task, or it is over            its task lives: ready, running, in conflict, or failed not long ago
//! signal ─────────────────────────▶ created ◀──────┐
//!          └──────────────────────▶ duplicate, counted
//! ```

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{Moment, TaskId, TaskState};

/// What makes two signals the same: 32 bytes, within a namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of these parts, in this order. Each is taken with its length, so that no two lists run
    /// together alike.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The fingerprint of these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Fingerprint {
    /// As a store keeps it, for people.
    pub(crate) fn shown(bytes: &[u8]) -> String {
        <[u8; 32]>::try_from(bytes).map_or_else(|_| String::new(), |bytes| Self(bytes).to_string())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A signal, and the task that deals with it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SignalRecord {
    /// Its namespace.
    pub namespace: String,
    /// Its fingerprint, as 64 hexadecimal digits.
    pub fingerprint: String,
    /// The task.
    pub task: TaskId,
    /// What the task is doing; it has succeeded if it is forgotten by now.
    pub state: TaskState,
    /// The operation of the task's first step; empty if it is forgotten by now.
    pub operation: String,
    /// How many signals the task stands for.
    pub occurrences: u64,
    /// When the first of them came.
    pub first_at: Moment,
    /// When the last of them came.
    pub last_at: Moment,
}

/// What became of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Signalled {
    /// A task was made for it.
    Created(TaskId),
    /// A task already deals with it.
    Duplicate {
        /// The task.
        task: TaskId,
        /// How many signals it stands for, this one and the first included.
        occurrences: u64,
    },
}

impl Signalled {
    /// The task that deals with it.
    pub const fn task(&self) -> TaskId {
        match self {
            Self::Created(task) | Self::Duplicate { task, .. } => *task,
        }
    }

    /// How many signals the task stands for.
    pub const fn occurrences(&self) -> u64 {
        match self {
            Self::Created(_) => 1,
            Self::Duplicate { occurrences, .. } => *occurrences,
        }
    }

    /// From what a store keeps, for one who would have made this task.
    pub(crate) fn kept(holder: TaskId, occurrences: i64, mine: Option<TaskId>) -> Self {
        if mine == Some(holder) {
            return Self::Created(holder);
        }
        Self::Duplicate { task: holder, occurrences: u64::try_from(occurrences).unwrap_or(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        assert_eq!(Fingerprint::of(["disk", "full"]), Fingerprint::of(["disk", "full"]));
        assert_ne!(Fingerprint::of(["disk", "full"]), Fingerprint::of(["diskf", "ull"]));
        assert_ne!(Fingerprint::of(["disk"]), Fingerprint::of(["disk", ""]));
        assert_eq!(Fingerprint::of(["a"]).to_string().len(), 64);
    }
}
