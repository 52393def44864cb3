//! Signals.

use super::{Shared, Work};
use crate::patience::patiently;
use crate::store::{Result, SignalKey};
use crate::{Error, Fingerprint, Signalled, Submitted, Task, TaskId};

impl Work {
    /// Makes a task for a signal, unless one with its fingerprint lives in its namespace: then that one is counted
    /// up and returned. Any number of nodes may be told of the same thing at once; one task is made.
    ///
    /// A task lives until it is over; one that failed keeps others away for
    /// [`suppress_failed`](crate::Signals::suppress_failed).
    pub async fn signal(&self, fingerprint: Fingerprint, task: Task) -> Result<Signalled> {
        let mut prepared = self.number(vec![task]).await?;
        let Some(task) = prepared.first_mut() else {
            return Err(Error::NotPossible("nothing was submitted".to_owned()));
        };
        // The fingerprint is the key.
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

    /// Counts a signal whose task lives; nothing if there is none. An answer that was lost may be counted twice.
    pub async fn signal_again(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<Signalled>> {
        let Shared { store, callers, settings, .. } = &*self.shared;
        let key = SignalKey { namespace, fingerprint, failed_for: settings.signals.suppress_failed };
        patiently(callers, |_| store.signal_again(&key)).await
    }

    /// The task of a signal, if it lives. Nothing is counted.
    pub async fn signal_task(&self, namespace: &str, fingerprint: Fingerprint) -> Result<Option<TaskId>> {
        let Shared { store, callers, settings, .. } = &*self.shared;
        let key = SignalKey { namespace, fingerprint, failed_for: settings.signals.suppress_failed };
        patiently(callers, |_| store.signal_task(&key)).await
    }
}
