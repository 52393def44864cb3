//! Versions of the policies: deploying a version to all nodes on the store, and following the active version.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{PolicyId, PolicySet};

use super::{Shared, Work};
use crate::patience::patiently;
use crate::store::{Activate, NewVersion, Result};
use crate::version::{Drift, Published, Version, VersionRecord, has_opinion, id_of};
use crate::{Error, Settings};

/// The interval at which the active version is polled, without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The minimum pause between two reads of the active version, however many notifications arrive.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// The largest number of listed versions.
const MOST_LISTED: i64 = 1000;
/// The largest length of an author's name.
const LONGEST_NAME: usize = 200;

impl Work {
    /// Opens the store as one of the nodes that share its policies: all use the version that is active.
    ///
    /// A set that the store has never had becomes the active version; the presets alone do so only if none is active. A
    /// set that was active earlier is not activated again; use [`publish`](Self::publish) for that.
    /// [`follow`](Self::follow) follows the versions that other nodes deploy.
    pub async fn join(url: &str, own: PolicySet, settings: Settings, who: &str) -> Result<Self> {
        settings.check_policies(&own).map_err(|waits| Error::Policies(waits.to_string()))?;
        let work = Self::attach(url, own, settings).await?;
        work.introduce(who).await?;
        work.shared.policies.own(&work.policies());
        work.look_at_policies().await?;
        work.show();
        Ok(work)
    }

    /// Stores the node's own policies, and activates them if the store has never had them.
    pub(super) async fn introduce(&self, who: &str) -> Result<()> {
        let version = self.shared.policies.current();
        let when = if has_opinion(&version.set) { Activate::IfUnseen } else { Activate::IfNone };
        self.activate(&version, who, when).await.map(drop)
    }

    /// Deploys these policies: makes them the active version for every node on the store. On any error nothing has
    /// changed. Submitted steps keep the policies they were submitted with. If the future is dropped, the version may
    /// or may not be active.
    pub async fn publish(&self, set: PolicySet, who: &str) -> Result<Published> {
        let settings = &self.shared.settings;
        settings.check_policies(&set).map_err(|waits| Error::Policies(waits.to_string()))?;
        let version = Version::of(set);
        let replaced = self.activate(&version, who, Activate::Always).await?;
        let published = Published { id: version.id, replaced };
        self.shared.policies.adopt(version);
        self.shared.policies.report();
        Ok(published)
    }

    /// Deploys this node's own file. From now on, drift is measured against it. If the future is dropped, the version
    /// may or may not be active.
    pub async fn publish_own(&self, set: PolicySet, who: &str) -> Result<Published> {
        let own = set.clone();
        let published = self.publish(set, who).await?;
        self.shared.policies.own(&own);
        self.shared.policies.report();
        Ok(published)
    }

    async fn activate(&self, version: &Version, who: &str, when: Activate) -> Result<bool> {
        let Shared { store, callers, .. } = &*self.shared;
        patiently(callers, |_| version.publish(&**store)).await?;
        let (file, who) = (version.set.to_toml(), clean(who));
        let new = NewVersion { hash: version.id.as_bytes(), file: &file, by: &who };
        let replaced = patiently(callers, |_| store.activate(&new, when)).await?;
        if replaced {
            tracing::info!(version = %version.id, by = who, "these policies replace others for everybody on the store");
        }
        Ok(replaced)
    }

    /// Returns the deployed versions, the newest first. Cancel-safe.
    pub async fn versions(&self) -> Result<Vec<VersionRecord>> {
        let Shared { store, callers, .. } = &*self.shared;
        patiently(callers, |_| store.versions(MOST_LISTED)).await
    }

    /// Returns a deployed version; `None` if it is unknown, or if this release cannot read it. Cancel-safe.
    pub async fn version(&self, id: PolicyId) -> Result<Option<PolicySet>> {
        let Shared { store, callers, .. } = &*self.shared;
        let file = patiently(callers, |_| store.version_file(id.as_bytes())).await?;
        Ok(file.and_then(|file| PolicySet::from_toml(&file).ok()))
    }

    /// Makes this node use the active version of the store, if there is one and this node can use it. Cancel-safe.
    pub async fn look_at_policies(&self) -> Result<()> {
        let Shared { store, callers, policies, .. } = &*self.shared;
        let active = patiently(callers, |_| store.active()).await?;
        let Some(id) = active.as_deref().and_then(id_of) else { return Ok(()) };
        if id == policies.current().id {
            policies.accept();
        } else if !policies.has_refused(id) {
            let file = patiently(callers, |_| store.version_file(id.as_bytes())).await?.unwrap_or_default();
            match self.usable(&file) {
                Ok(set) => {
                    let version = Version::called(id, set);
                    patiently(callers, |_| version.publish(&**store)).await?;
                    policies.adopt(version);
                    tracing::info!(version = %id, "this node goes by another version of the policies from now on");
                }
                Err(why) => policies.refuse(id, why),
            }
        }
        policies.report();
        Ok(())
    }

    fn usable(&self, file: &str) -> std::result::Result<PolicySet, String> {
        let set = PolicySet::from_toml(file).map_err(|problems| problems.to_string())?;
        self.shared.settings.check_policies(&set).map_err(|waits| waits.to_string())?;
        Ok(set)
    }

    /// Follows the versions that other nodes deploy, while it is polled: within two seconds, with or without
    /// notifications. Dropping the future stops it.
    pub async fn follow(&self) {
        let mut told = self.shared.store.policies_told();
        loop {
            if let Err(error) = self.look_at_policies().await {
                tracing::warn!(%error, "cannot see which policies are active; it is tried again");
            }
            tokio::time::sleep(LOOK_PAUSE).await;
            tokio::select! {
                _ = told.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
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

/// Returns a name that is safe for logs and lists: without control characters, and of limited length.
fn clean(who: &str) -> String {
    who.chars().filter(|letter| !letter.is_control()).take(LONGEST_NAME).collect()
}
