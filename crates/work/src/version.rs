//! Versions of the policies: the version that this node uses, its drift from the node's own file, and the deployment of a
//! version to all nodes on the store.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Policy, PolicyId, PolicySet, is_unprintable};
use parking_lot::{Mutex, RwLock};
use serde::{Serialize, Serializer};

use crate::store::{Activate, NewVersion, PolicyNumber, PolicyRow, Result, Store};
use crate::with_retry::with_retry;
use crate::work::{Shared, Work};
use crate::{Moment, PolicyError, Settings, metrics};

/// A deployed version of the policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct VersionRecord {
    /// The hash of its content.
    #[serde(serialize_with = "shown")]
    pub id: PolicyId,
    /// Whether it is active.
    pub active: bool,
    /// When it was first deployed.
    pub deployed_at: Moment,
    /// The author of its first deployment, if known.
    pub deployed_by: Option<String>,
    /// When it was last activated, if known.
    pub activated_at: Option<Moment>,
    /// The author of its last activation, if known.
    pub activated_by: Option<String>,
}

/// The result of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Deployed {
    /// The version that is active now.
    pub id: PolicyId,
    /// Whether it replaced another active version.
    pub replaced: bool,
}

fn shown<S: Serializer>(id: &PolicyId, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// A difference between a node's policies and those of the other nodes on its store. The node continues to work, with
/// the policies that it uses.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Drift {
    /// The node's own policy file differs from the active version.
    OwnFile {
        /// The version of the node's file.
        own: PolicyId,
        /// The active version.
        active: PolicyId,
    },
    /// This node cannot use the active version; it uses the previous one.
    Refused {
        /// The active version.
        active: PolicyId,
        /// The version that this node uses.
        current: PolicyId,
        /// The reason why the active version cannot be used.
        why: String,
    },
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnFile { own, active } => write!(
                f,
                "this node's policy file is version {}, and version {} is active on the store: change the file, \
                 or deploy it with `holdoff policy deploy` or SIGHUP",
                short(own),
                short(active)
            ),
            Self::Refused { active, current, why } => write!(
                f,
                "this node cannot use the active version {} and continues with {}: {why}",
                short(active),
                short(current)
            ),
        }
    }
}

/// Returns a prefix of the id that is long enough to distinguish versions.
fn short(id: &PolicyId) -> String {
    id.to_string().chars().take(12).collect()
}

/// A set of policies, and their numbers in the store. It is immutable.
#[derive(Debug)]
pub(crate) struct PolicyVersion {
    /// The id under which the store keeps this version: the hash of its content, computed by the node that deployed it.
    /// Another release may have other presets, and therefore compute another id for the same file.
    pub(crate) id: PolicyId,
    pub(crate) set: Arc<PolicySet>,
    numbers: RwLock<HashMap<String, PolicyNumber>>,
}

impl PolicyVersion {
    pub(crate) fn of(set: PolicySet) -> Self {
        Self::with_id(set.id(), set)
    }

    pub(crate) fn with_id(id: PolicyId, set: PolicySet) -> Self {
        Self { id, set: Arc::new(set), numbers: RwLock::default() }
    }

    /// Stores its policies.
    pub(crate) async fn store_policies(&self, store: &dyn Store) -> Result<()> {
        let rows: Vec<PolicyRow> =
            self.set.policies().iter().map(|(name, policy)| row(name, policy)).collect();
        let numbers = store.store_policies(&rows).await?;
        let names = rows.into_iter().map(|row| row.name).zip(numbers);
        self.numbers.write().extend(names);
        Ok(())
    }

    /// Returns the number of one of its policies, if it is known already.
    pub(crate) fn cached_number(&self, name: &str) -> Option<PolicyNumber> {
        self.numbers.read().get(name).copied()
    }

    /// Returns the number of one of its policies, and stores the policy if its number is not known.
    pub(crate) async fn number(&self, store: &dyn Store, name: &str) -> Result<PolicyNumber> {
        if let Some(number) = self.cached_number(name) {
            return Ok(number);
        }
        let Some(policy) = self.set.policy(name) else {
            return Err(PolicyError::Undefined(name.to_owned()).into());
        };
        let numbers = store.store_policies(&[row(name, policy)]).await?;
        let number = numbers.first().copied().unwrap_or_default();
        self.numbers.write().insert(name.to_owned(), number);
        Ok(number)
    }
}

/// The version that this node uses, and the version of its own file.
#[derive(Debug)]
pub(crate) struct ActivePolicies {
    current: RwLock<Arc<PolicyVersion>>,
    state: Mutex<DriftState>,
}

#[derive(Debug, Default)]
struct DriftState {
    /// The version of the node's own file; `None` if the file contains only the presets. Then there is no drift from
    /// it.
    own: Option<PolicyId>,
    /// The active version that this node cannot use, and the reason.
    refused: Option<(PolicyId, String)>,
    /// The drift that was logged last, so that each is logged once.
    logged: Option<Drift>,
}

impl ActivePolicies {
    pub(crate) fn new(set: PolicySet) -> Self {
        Self { current: RwLock::new(Arc::new(PolicyVersion::of(set))), state: Mutex::default() }
    }

    pub(crate) fn current(&self) -> Arc<PolicyVersion> {
        Arc::clone(&self.current.read())
    }

    /// Records that this node uses the active version.
    pub(crate) fn clear_refused(&self) {
        self.state.lock().refused = None;
    }

    /// Makes this node use a version.
    pub(crate) fn set_current(&self, version: PolicyVersion) {
        self.clear_refused();
        *self.current.write() = Arc::new(version);
    }

    /// Sets the policies of this node's own file.
    pub(crate) fn set_own(&self, set: &PolicySet) {
        self.state.lock().own = differs_from_presets(set).then(|| set.id());
    }

    /// Records that this node cannot use the active version; the node keeps the previous one.
    pub(crate) fn set_refused(&self, id: PolicyId, why: String) {
        self.state.lock().refused = Some((id, why));
    }

    pub(crate) fn has_refused(&self, id: PolicyId) -> bool {
        self.state.lock().refused.as_ref().is_some_and(|(refused, _)| *refused == id)
    }

    /// Returns how this node's policies differ from those of the other nodes, if they do.
    pub(crate) fn drift(&self) -> Option<Drift> {
        // Both ids are computed by this release, so the same file is no drift, whichever release deployed it.
        let current = self.current().set.id();
        let state = self.state.lock();
        if let Some((active, why)) = &state.refused {
            return Some(Drift::Refused { active: *active, current, why: why.clone() });
        }
        let own = state.own.filter(|own| *own != current)?;
        Some(Drift::OwnFile { own, active: current })
    }

    /// Reports drift: always in the metric, and in the log if it has changed.
    pub(crate) fn report_drift(&self) {
        let drift = self.drift();
        metrics::policy_drift(drift.is_some());
        let before = std::mem::replace(&mut self.state.lock().logged, drift.clone());
        match drift {
            drift if drift == before => {}
            Some(drift) => tracing::warn!(%drift, "detected policy drift"),
            None => tracing::info!("resolved policy drift: this node uses the active version"),
        }
    }
}

/// Returns the id with these bytes.
pub(crate) fn id_of(hash: &[u8]) -> Option<PolicyId> {
    <[u8; 32]>::try_from(hash).ok().map(PolicyId::from)
}

/// Whether a set differs from the presets.
pub(crate) fn differs_from_presets(set: &PolicySet) -> bool {
    *set != PolicySet::default()
}

fn row(name: &str, policy: &Policy) -> PolicyRow {
    PolicyRow { name: name.to_owned(), hash: policy.id().as_bytes().to_vec(), compiled: policy.canonical() }
}

/// The interval at which the active version is polled, without a notification.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// The minimum pause between two reads of the active version, however many notifications arrive.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// The largest number of listed versions.
const MAX_LISTED: i64 = 1000;
/// The largest length of an author's name.
const MAX_NAME_LENGTH: usize = 200;

impl Work {
    /// Opens the store as one of the nodes that share its policies: all use the version that is active.
    ///
    /// A set that the store has never had becomes the active version; the presets alone do so only if none is active. A
    /// set that was active earlier is not activated again; use [`deploy`](Self::deploy) for that.
    /// [`follow_policies`](Self::follow_policies) follows the versions that other nodes deploy.
    pub async fn join(url: &str, own: PolicySet, settings: Settings, who: &str) -> Result<Self> {
        settings.check_policies(&own).map_err(PolicyError::from)?;
        let work = Self::attach(url, own, settings).await?;
        work.deploy_if_new(who).await?;
        work.shared.policies.set_own(&work.policies());
        work.refresh_policies().await?;
        work.list_node();
        Ok(work)
    }

    /// Stores the node's own policies, and activates them if the store has never had them.
    pub(super) async fn deploy_if_new(&self, who: &str) -> Result<()> {
        let version = self.shared.policies.current();
        let when = if differs_from_presets(&version.set) { Activate::IfUnseen } else { Activate::IfNone };
        self.activate(&version, who, when).await.map(drop)
    }

    /// Deploys these policies: makes them the active version for every node on the store. On any error nothing has
    /// changed. Submitted steps keep the policies they were submitted with. If the future is dropped, the version may
    /// or may not be active.
    pub async fn deploy(&self, set: PolicySet, who: &str) -> Result<Deployed> {
        let settings = &self.shared.settings;
        settings.check_policies(&set).map_err(PolicyError::from)?;
        let version = PolicyVersion::of(set);
        let replaced = self.activate(&version, who, Activate::Always).await?;
        let deployed = Deployed { id: version.id, replaced };
        self.shared.policies.set_current(version);
        self.shared.policies.report_drift();
        Ok(deployed)
    }

    /// Deploys this node's own file. From now on, drift is measured against it. If the future is dropped, the version
    /// may or may not be active.
    pub async fn deploy_own(&self, set: PolicySet, who: &str) -> Result<Deployed> {
        let own = set.clone();
        let deployed = self.deploy(set, who).await?;
        self.shared.policies.set_own(&own);
        self.shared.policies.report_drift();
        Ok(deployed)
    }

    async fn activate(&self, version: &PolicyVersion, who: &str, when: Activate) -> Result<bool> {
        let Shared { store, call_policy, .. } = &*self.shared;
        with_retry(call_policy, |_| version.store_policies(&**store)).await?;
        let (file, who) = (version.set.to_toml(), sanitized(who));
        let new = NewVersion { hash: version.id.as_bytes(), file: &file, by: &who };
        let replaced = with_retry(call_policy, |_| store.activate_version(&new, when)).await?;
        if replaced {
            tracing::info!(version = %version.id, by = who, "replaced the active policy version for every node on the store");
        }
        Ok(replaced)
    }

    /// Returns the deployed versions, the newest first. Cancel-safe.
    pub async fn versions(&self) -> Result<Vec<VersionRecord>> {
        let Shared { store, call_policy, .. } = &*self.shared;
        with_retry(call_policy, |_| store.versions(MAX_LISTED)).await
    }

    /// Returns a deployed version; `None` if it is unknown, or if this release cannot read it. Cancel-safe.
    pub async fn version(&self, id: PolicyId) -> Result<Option<PolicySet>> {
        let Shared { store, call_policy, .. } = &*self.shared;
        let file = with_retry(call_policy, |_| store.version_file(id.as_bytes())).await?;
        Ok(file.and_then(|file| PolicySet::from_toml(&file).ok()))
    }

    /// Makes this node use the active version of the store, if there is one and this node can use it. Cancel-safe.
    pub async fn refresh_policies(&self) -> Result<()> {
        let Shared { store, call_policy, policies, .. } = &*self.shared;
        let active = with_retry(call_policy, |_| store.active_version()).await?;
        let Some(id) = active.as_deref().and_then(id_of) else { return Ok(()) };
        if id == policies.current().id {
            policies.clear_refused();
        } else if !policies.has_refused(id) {
            let file =
                with_retry(call_policy, |_| store.version_file(id.as_bytes())).await?.unwrap_or_default();
            match self.usable(&file) {
                Ok(set) => {
                    let version = PolicyVersion::with_id(id, set);
                    with_retry(call_policy, |_| version.store_policies(&**store)).await?;
                    policies.set_current(version);
                    tracing::info!(version = %id, "switched to the active policy version");
                }
                Err(why) => policies.set_refused(id, why),
            }
        }
        policies.report_drift();
        Ok(())
    }

    fn usable(&self, file: &str) -> std::result::Result<PolicySet, String> {
        let set = PolicySet::from_toml(file).map_err(|problems| problems.to_string())?;
        self.shared.settings.check_policies(&set).map_err(|waits| waits.to_string())?;
        Ok(set)
    }

    /// Follows the versions that other nodes deploy, while it is polled: within two seconds, with or without
    /// notifications. Dropping the future stops it.
    pub async fn follow_policies(&self) {
        let mut changes = self.shared.store.policy_changes();
        loop {
            if let Err(error) = self.refresh_policies().await {
                tracing::warn!(%error, "failed to read the active policy version; the next poll reads it again");
            }
            tokio::time::sleep(MIN_PAUSE).await;
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(POLL_EVERY) => {}
            }
        }
    }

    /// Returns the policies under which this node accepts work.
    pub fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.shared.policies.current().set)
    }

    /// Returns the version of the policies that this node uses.
    pub fn policy_version(&self) -> PolicyId {
        self.shared.policies.current().id
    }

    /// Returns how this node's policies differ from those of the other nodes on the store, if they do.
    pub fn drift(&self) -> Option<Drift> {
        self.shared.policies.drift()
    }
}

/// Returns a name that is safe for logs and lists: without control and bidi characters, and of limited length.
fn sanitized(who: &str) -> String {
    who.chars().filter(|letter| !is_unprintable(*letter)).take(MAX_NAME_LENGTH).collect()
}
