//! Policies as versions: which one is in force here, and whether it is that of this node's own file.

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

/// A set of policies, and the numbers that the store knows them by. It never changes.
#[derive(Debug)]
pub(crate) struct Version {
    /// What the store calls it: the id of its content as whoever published it computed it. Another release may have
    /// other presets, and then another id for the same file.
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

    /// Takes its policies into the store.
    pub(crate) async fn publish(&self, store: &dyn Store) -> Result<()> {
        let rows: Vec<PolicyRow> =
            self.set.policies().iter().map(|(name, policy)| row(name, policy)).collect();
        let numbers = store.publish(&rows).await?;
        let names = rows.into_iter().map(|row| row.name).zip(numbers);
        self.numbers.write().unwrap_or_else(PoisonError::into_inner).extend(names);
        Ok(())
    }

    /// The number of one of its policies, if that was asked for before.
    pub(crate) fn known(&self, name: &str) -> Option<PolicyNumber> {
        self.numbers.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    /// The number of one of its policies.
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

/// The version in force on this node, and what its own file says.
#[derive(Debug)]
pub(crate) struct Policies {
    current: RwLock<Arc<Version>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The node's own file. Nothing if it says nothing about policies: then it has no opinion.
    own: Option<PolicyId>,
    /// The active version that cannot be used here, and why.
    refused: Option<(PolicyId, String)>,
    /// What was said last, so that it is said once.
    said: Option<Drift>,
}

impl Policies {
    pub(crate) fn new(set: PolicySet) -> Self {
        Self { current: RwLock::new(Arc::new(Version::of(set))), state: Mutex::default() }
    }

    pub(crate) fn current(&self) -> Arc<Version> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The active version is the one in force here.
    pub(crate) fn accept(&self) {
        self.state().refused = None;
    }

    /// Puts a version in force here.
    pub(crate) fn adopt(&self, version: Version) {
        self.accept();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(version);
    }

    /// What this node's own file says from now on.
    pub(crate) fn own(&self, set: &PolicySet) {
        self.state().own = has_opinion(set).then(|| set.id());
    }

    /// The active version cannot be used here; the one before stays in force.
    pub(crate) fn refuse(&self, id: PolicyId, why: String) {
        self.state().refused = Some((id, why));
    }

    pub(crate) fn has_refused(&self, id: PolicyId) -> bool {
        self.state().refused.as_ref().is_some_and(|(refused, _)| *refused == id)
    }

    /// How this node differs from the others, if it does.
    pub(crate) fn drift(&self) -> Option<Drift> {
        // Both as this release computes them: the same file is no drift, whoever published it.
        let current = self.current().set.id();
        let state = self.state();
        if let Some((active, why)) = &state.refused {
            return Some(Drift::Refused { active: *active, current, why: why.clone() });
        }
        let own = state.own.filter(|own| *own != current)?;
        Some(Drift::OwnFile { own, active: current })
    }

    /// Says whether it differs: in the metric always, in the log when that has changed.
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

/// The id that these bytes are.
pub(crate) fn id_of(hash: &[u8]) -> Option<PolicyId> {
    <[u8; 32]>::try_from(hash).ok().map(PolicyId::from)
}

/// Whether a set says anything that the presets do not.
pub(crate) fn has_opinion(set: &PolicySet) -> bool {
    *set != PolicySet::default()
}

fn row(name: &str, policy: &Policy) -> PolicyRow {
    PolicyRow { name: name.to_owned(), hash: policy.id().as_bytes().to_vec(), compiled: policy.canonical() }
}
