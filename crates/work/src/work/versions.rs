//! Policies as versions: publishing one for everybody on the store, and following what others publish.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{PolicyId, PolicySet};

use super::{Shared, Work};
use crate::patience::patiently;
use crate::store::{Activate, NewVersion, Result};
use crate::version::{Drift, Published, Version, VersionRecord, has_opinion, id_of};
use crate::{Error, Settings};

/// How often to look which version is active, when nobody tells.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to leave the store alone after a look, however much is told.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// The most versions that are listed.
const MOST_LISTED: i64 = 1000;
/// The longest name of whoever publishes.
const LONGEST_NAME: usize = 200;

impl Work {
    /// Opens the store as one of the nodes that share its policies: all go by the one version that is active.
    ///
    /// A set that the store has never seen becomes the active one; the presets alone only if none is active. A set that
    /// was active once, and is no more, stays in the past: [`publish`](Self::publish) brings it back.
    /// [`follow`](Self::follow) keeps up with what others publish.
    pub async fn join(url: &str, own: PolicySet, settings: Settings, who: &str) -> Result<Self> {
        settings.check_policies(&own).map_err(|waits| Error::Policies(waits.to_string()))?;
        let work = Self::attach(url, own, settings).await?;
        work.introduce(who).await?;
        work.shared.policies.own(&work.policies());
        work.look_at_policies().await?;
        work.show();
        Ok(work)
    }

    /// Takes the own policies into the store, and puts them in force if it has never seen them.
    pub(super) async fn introduce(&self, who: &str) -> Result<()> {
        let version = self.shared.policies.current();
        let when = if has_opinion(&version.set) { Activate::IfUnseen } else { Activate::IfNone };
        self.activate(&version, who, when).await.map(drop)
    }

    /// Makes these policies the active version for every node on the store. On any problem nothing has changed.
    /// Work in flight keeps the version it began with.
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

    /// The same for this node's own file, which it is held against from now on.
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

    /// The versions there were, the newest first.
    pub async fn versions(&self) -> Result<Vec<VersionRecord>> {
        let Shared { store, callers, .. } = &*self.shared;
        patiently(callers, |_| store.versions(MOST_LISTED)).await
    }

    /// A version that was published once; nothing if it is not known, or is none that this release can read.
    pub async fn version(&self, id: PolicyId) -> Result<Option<PolicySet>> {
        let Shared { store, callers, .. } = &*self.shared;
        let file = patiently(callers, |_| store.version_file(id.as_bytes())).await?;
        Ok(file.and_then(|file| PolicySet::from_toml(&file).ok()))
    }

    /// Goes by the version that is active on the store from now on, if there is one and it can be used here.
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

    /// Keeps up with what others publish, as long as it is polled: well within two seconds, however it is heard of.
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

    /// The policies this node takes work in by.
    pub fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.shared.policies.current().set)
    }

    /// The version of the policies in force on this node.
    pub fn policy_version(&self) -> PolicyId {
        self.shared.policies.current().id
    }

    /// How this node differs from the others on the store, if it does.
    pub fn drift(&self) -> Option<Drift> {
        self.shared.policies.drift()
    }
}

/// A name that can stand in a log and a list.
fn clean(who: &str) -> String {
    who.chars().filter(|letter| !letter.is_control()).take(LONGEST_NAME).collect()
}
