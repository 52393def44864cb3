//! Signals: deduplicated alerts. All signals with the same fingerprint create one task.
//!
//! ```text
//!          no task, or it is over            its task is live: ready, running, conflicted, or failed recently
//! signal ─────────────────────────▶ created ◀──────┐
//!          └──────────────────────▶ duplicate, counted
//! ```

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::store::{Result, SignalKey};
use crate::with_retry::with_retry;
use crate::work::{Shared, Work};
use crate::{Error, Moment, Submitted, Task, TaskId, TaskState};

/// The identity of a signal: two signals with the same 32 bytes in one namespace are the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Computes the fingerprint of these parts, in this order. The hash includes the length of each part, so that
    /// different lists cannot have the same concatenation.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Returns the fingerprint with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Fingerprint {
    /// Formats the bytes of a stored fingerprint as text.
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

/// A signal and its task.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SignalRecord {
    /// The namespace.
    pub namespace: String,
    /// The fingerprint, as 64 hexadecimal digits.
    pub fingerprint: String,
    /// The task.
    pub task: TaskId,
    /// The state of the task; `succeeded` if the task was already pruned.
    pub state: TaskState,
    /// The operation of the task's first step; empty if the task was already pruned.
    pub operation: String,
    /// The number of signals that the task represents.
    pub occurrences: u64,
    /// The time of the first of these signals.
    pub first_at: Moment,
    /// The time of the last of these signals.
    pub last_at: Moment,
}

/// The result of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Signalled {
    /// The signal created a task.
    Created(TaskId),
    /// A live task with this fingerprint exists.
    Duplicate {
        /// The task.
        task: TaskId,
        /// The number of signals that the task represents, including this one and the first.
        occurrences: u64,
    },
}

impl Signalled {
    /// Returns the task of the signal.
    pub const fn task(&self) -> TaskId {
        match self {
            Self::Created(task) | Self::Duplicate { task, .. } => *task,
        }
    }

    /// Returns the number of signals that the task represents.
    pub const fn occurrences(&self) -> u64 {
        match self {
            Self::Created(_) => 1,
            Self::Duplicate { occurrences, .. } => *occurrences,
        }
    }

    /// Converts the store's record: `Created` if the recorded task is `mine`, the task that the caller submitted, and
    /// `Duplicate` otherwise.
    pub(crate) fn of_holder(holder: TaskId, occurrences: i64, mine: Option<TaskId>) -> Self {
        if mine == Some(holder) {
            return Self::Created(holder);
        }
        Self::Duplicate { task: holder, occurrences: u64::try_from(occurrences).unwrap_or(1) }
    }
}

impl Work {
    /// Submits a task for a signal, unless a live task with its fingerprint exists in its namespace. In that case it
    /// counts an occurrence of the live task and returns it. If any number of nodes receive the same signal at once,
    /// one task is created.
    ///
    /// The suppression ends with the task; a failed task suppresses further signals for
    /// [`suppress_failed`](crate::SignalSettings::suppress_failed). If the future is dropped, the signal may or may not be
    /// counted.
    pub async fn signal(&self, fingerprint: Fingerprint, task: Task) -> Result<Signalled> {
        let mut prepared = self.prepare_tasks(vec![task]).await?;
        let none = || Error::NotPossible("no task was submitted".to_owned());
        let task = prepared.first_mut().ok_or_else(none)?;
        // The fingerprint replaces the deduplication key.
        task.dedup = None;
        let Shared { store, call_policy, settings, .. } = &*self.shared;
        let namespace = task.namespace.clone();
        let key =
            SignalKey { namespace: &namespace, fingerprint, failed_for: settings.signals.suppress_failed };
        let mut signalled = with_retry(call_policy, |_| store.signal(&key, task)).await;
        if matches!(signalled, Err(Error::LaneRemoved)) {
            prepared = self.with_renewed_lanes(&prepared).await?;
            let task = prepared.first().ok_or_else(none)?;
            signalled = with_retry(call_policy, |_| store.signal(&key, task)).await;
        }
        let signalled = signalled?;
        let result = match signalled {
            Signalled::Created(task) => Submitted::Created(task),
            Signalled::Duplicate { task, .. } => Submitted::Duplicate(task),
        };
        self.count_submitted(&prepared, &[result]);
        Ok(signalled)
    }

    /// Counts an occurrence of a signal whose task is live; returns `None` if there is none. If a response is lost, the
    /// occurrence may be counted twice.
    pub async fn signal_again(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<Signalled>> {
        let Shared { store, call_policy, settings, .. } = &*self.shared;
        let key = SignalKey { namespace, fingerprint, failed_for: settings.signals.suppress_failed };
        with_retry(call_policy, |_| store.signal_again(&key)).await
    }

    /// Returns the task of a signal, if it is live. Counts nothing. Cancel-safe.
    pub async fn signal_task(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<TaskId>> {
        let Shared { store, call_policy, settings, .. } = &*self.shared;
        let key = SignalKey { namespace, fingerprint, failed_for: settings.signals.suppress_failed };
        with_retry(call_policy, |_| store.signal_task(&key)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_depend_on_part_boundaries() {
        assert_eq!(Fingerprint::of(["disk", "full"]), Fingerprint::of(["disk", "full"]));
        assert_ne!(Fingerprint::of(["disk", "full"]), Fingerprint::of(["diskf", "ull"]));
        assert_ne!(Fingerprint::of(["disk"]), Fingerprint::of(["disk", ""]));
        assert_eq!(Fingerprint::of(["a"]).to_string().len(), 64);
    }
}
