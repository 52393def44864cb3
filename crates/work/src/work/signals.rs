//! Signals: deduplicated alerts.

use super::{Shared, Work};
use crate::patience::patiently;
use crate::store::{Result, SignalKey};
use crate::{Error, Fingerprint, Signalled, Submitted, Task, TaskId};

impl Work {
    /// Submits a task for a signal, unless a live task with its fingerprint exists in its namespace. In that case it
    /// counts an occurrence of the live task and returns it. If any number of nodes receive the same signal at once,
    /// one task is created.
    ///
    /// The suppression ends with the task; a failed task suppresses further signals for
    /// [`suppress_failed`](crate::Signals::suppress_failed). If the future is dropped, the signal may or may not be
    /// counted.
    pub async fn signal(&self, fingerprint: Fingerprint, task: Task) -> Result<Signalled> {
        let mut prepared = self.number(vec![task]).await?;
        let Some(task) = prepared.first_mut() else {
            return Err(Error::NotPossible("nothing was submitted".to_owned()));
        };
        // The fingerprint replaces the deduplication key.
        task.dedup = None;
        let Shared { store, callers, settings, .. } = &*self.shared;
        let namespace = task.namespace.clone();
        let key =
            SignalKey { namespace: &namespace, fingerprint, failed_for: settings.signals.suppress_failed };
        let signalled = patiently(callers, |_| store.signal(&key, task)).await?;
        let fate = match signalled {
            Signalled::Created(task) => Submitted::Created(task),
            Signalled::Duplicate { task, .. } => Submitted::Duplicate(task),
        };
        self.count_in(&prepared, &[fate]);
        Ok(signalled)
    }

    /// Counts an occurrence of a signal whose task is live; returns `None` if there is none. If a response is lost, the
    /// occurrence may be counted twice.
    pub async fn signal_again(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<Signalled>> {
        let Shared { store, callers, settings, .. } = &*self.shared;
        let key = SignalKey { namespace, fingerprint, failed_for: settings.signals.suppress_failed };
        patiently(callers, |_| store.signal_again(&key)).await
    }

    /// Returns the task of a signal, if it is live. Counts nothing. Cancel-safe.
    pub async fn signal_task(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<TaskId>> {
        let Shared { store, callers, settings, .. } = &*self.shared;
        let key = SignalKey { namespace, fingerprint, failed_for: settings.signals.suppress_failed };
        patiently(callers, |_| store.signal_task(&key)).await
    }
}
