//! Versions of the policies: the version this node uses, and whether it equals that of the node's own file.

mod drift;
mod record;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use holdoff_policy::{Policy, PolicyId, PolicySet};

pub use drift::Drift;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use record::VersionRow;
pub use record::{Published, VersionRecord};

use crate::store::{PolicyNumber, PolicyRow, Result, Store};
use crate::{Error, metrics};

/// A set of policies, and their numbers in the store. It is immutable.
#[derive(Debug)]
pub(crate) struct Version {
    /// The id under which the store keeps this version: the hash of its content, computed by the node that deployed it.
    /// Another release may have other presets, and therefore compute another id for the same file.
    pub(crate) id: PolicyId,
    pub(crate) set: Arc<PolicySet>,
    numbers: RwLock<HashMap<String, PolicyNumber>>,
}

impl Version {
    pub(crate) fn of(set: PolicySet) -> Self {
        Self::called(set.id(), set)
    }

    pub(crate) fn called(id: PolicyId, set: PolicySet) -> Self {
        Self { id, set: Arc::new(set), numbers: RwLock::default() }
    }

    /// Stores its policies.
    pub(crate) async fn publish(&self, store: &dyn Store) -> Result<()> {
        let rows: Vec<PolicyRow> =
            self.set.policies().iter().map(|(name, policy)| row(name, policy)).collect();
        let numbers = store.publish(&rows).await?;
        let names = rows.into_iter().map(|row| row.name).zip(numbers);
        self.numbers.write().unwrap_or_else(PoisonError::into_inner).extend(names);
        Ok(())
    }

    /// Returns the number of one of its policies, if it is known already.
    pub(crate) fn known(&self, name: &str) -> Option<PolicyNumber> {
        self.numbers.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    /// Returns the number of one of its policies, and stores the policy if its number is not known.
    pub(crate) async fn number(&self, store: &dyn Store, name: &str) -> Result<PolicyNumber> {
        if let Some(number) = self.known(name) {
            return Ok(number);
        }
        let Some(policy) = self.set.policy(name) else {
            return Err(Error::Policies(format!("there is no policy `{name}`")));
        };
        let numbers = store.publish(&[row(name, policy)]).await?;
        let number = numbers.first().copied().unwrap_or_default();
        self.numbers.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), number);
        Ok(number)
    }
}

/// The version that this node uses, and the version of its own file.
#[derive(Debug)]
pub(crate) struct Policies {
    current: RwLock<Arc<Version>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The version of the node's own file; `None` if the file contains only the presets. Then there is no drift from
    /// it.
    own: Option<PolicyId>,
    /// The active version that this node cannot use, and the reason.
    refused: Option<(PolicyId, String)>,
    /// The drift that was logged last, so that each is logged once.
    said: Option<Drift>,
}

impl Policies {
    pub(crate) fn new(set: PolicySet) -> Self {
        Self { current: RwLock::new(Arc::new(Version::of(set))), state: Mutex::default() }
    }

    pub(crate) fn current(&self) -> Arc<Version> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that this node uses the active version.
    pub(crate) fn accept(&self) {
        self.state().refused = None;
    }

    /// Makes this node use a version.
    pub(crate) fn adopt(&self, version: Version) {
        self.accept();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(version);
    }

    /// Sets the policies of this node's own file.
    pub(crate) fn own(&self, set: &PolicySet) {
        self.state().own = has_opinion(set).then(|| set.id());
    }

    /// Records that this node cannot use the active version; the node keeps the previous one.
    pub(crate) fn refuse(&self, id: PolicyId, why: String) {
        self.state().refused = Some((id, why));
    }

    pub(crate) fn has_refused(&self, id: PolicyId) -> bool {
        self.state().refused.as_ref().is_some_and(|(refused, _)| *refused == id)
    }

    /// Returns how this node's policies differ from those of the other nodes, if they do.
    pub(crate) fn drift(&self) -> Option<Drift> {
        // Both ids are computed by this release, so the same file is no drift, whichever release deployed it.
        let current = self.current().set.id();
        let state = self.state();
        if let Some((active, why)) = &state.refused {
            return Some(Drift::Refused { active: *active, current, why: why.clone() });
        }
        let own = state.own.filter(|own| *own != current)?;
        Some(Drift::OwnFile { own, active: current })
    }

    /// Reports drift: always in the metric, and in the log if it has changed.
    pub(crate) fn report(&self) {
        let drift = self.drift();
        metrics::policy_drift(drift.is_some());
        let before = std::mem::replace(&mut self.state().said, drift.clone());
        match drift {
            drift if drift == before => {}
            Some(drift) => tracing::warn!("policy drift: {drift}"),
            None => tracing::info!("policies are the same here as everywhere on the store"),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the id with these bytes.
pub(crate) fn id_of(hash: &[u8]) -> Option<PolicyId> {
    <[u8; 32]>::try_from(hash).ok().map(PolicyId::from)
}

/// Whether a set differs from the presets.
pub(crate) fn has_opinion(set: &PolicySet) -> bool {
    *set != PolicySet::default()
}

fn row(name: &str, policy: &Policy) -> PolicyRow {
    PolicyRow { name: name.to_owned(), hash: policy.id().as_bytes().to_vec(), compiled: policy.canonical() }
}
