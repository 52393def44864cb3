//! A simulated operator, whose actions fill the audit log.

use std::time::Duration;

use holdoff_policy::PolicySet;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::daemon::{Asked, Daemon};
use super::plan::{Deed, shifts};
use super::task::{NEWSLETTERS, REVISION};
use super::voice::Voice;

/// The number of conflicts that stay open for the user to look at.
const LEFT_OPEN: usize = 6;
/// The maximum number of conflicts resolved in one action.
const MOST_AT_ONCE: usize = 100;

pub(super) struct Operator {
    pub(super) daemon: Daemon,
    /// The policies, and a second version with one change.
    pub(super) file: String,
    pub(super) second: String,
    pub(super) voice: Voice,
}

impl Operator {
    /// Performs every action that is scheduled before `until`.
    pub(super) async fn work(self, since: Instant, until: Option<Duration>) {
        for (at, deed) in shifts().take_while(|(at, _)| until.is_none_or(|until| *at < until)) {
            tokio::time::sleep_until(since + at).await;
            match self.act(deed).await {
                Ok(Some(what)) => self.voice.say(&what),
                Ok(None) => {}
                Err(why) => self.voice.say(&format!("the operator could not do it: {why}")),
            }
        }
    }

    /// Performs an action. Returns a message if the action is worth reporting.
    pub(super) async fn act(&self, deed: Deed) -> Asked<Option<String>> {
        match deed {
            Deed::ResolveOne => {
                let open = self.conflicts().await?;
                let Some(oldest) = open.last() else { return Ok(None) };
                self.resolve(oldest).await?;
                Ok(Some("the operator decided a conflict, with the right revision".to_owned()))
            }
            Deed::ResolveMost => {
                for step in self.conflicts().await?.iter().skip(LEFT_OPEN) {
                    self.resolve(step).await?;
                }
                Ok(None)
            }
            Deed::Publish { is_second } => {
                let file = if is_second { &self.second } else { &self.file };
                self.daemon.post("/v1/policies", &json!({ "file": file })).await?;
                Ok(is_second.then(|| "another version of the policies is in force".to_owned()))
            }
            Deed::RetryFailed => {
                let filter = json!({ "state": ["failed"], "operation": "legacy.*" });
                self.daemon.post("/v1/steps/retry", &json!({ "filter": filter })).await?;
                Ok(Some("the operator had what failed tried again; it fails again".to_owned()))
            }
            Deed::DiscardOld => {
                let filter = json!({ "state": ["failed"], "operation": "legacy.*", "older_than": "5m" });
                self.daemon.post("/v1/steps/discard", &json!({ "filter": filter })).await.map(|_| None)
            }
            Deed::Newsletters { is_paused } => {
                let verb = if is_paused { "pause" } else { "resume" };
                let path = format!("/v1/queues/{verb}");
                self.daemon.post(&path, &json!({ "queue": NEWSLETTERS })).await.map(|_| None)
            }
        }
    }

    /// Lists the conflicted steps, the newest first.
    async fn conflicts(&self) -> Asked<Vec<String>> {
        let page = self.daemon.get(&format!("/v1/conflicts?operation=crm.*&limit={MOST_AT_ONCE}")).await?;
        let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Ok(items.iter().filter_map(|step| Some(step.get("id")?.as_str()?.to_owned())).collect())
    }

    async fn resolve(&self, step: &str) -> Asked<()> {
        let correct = |request: &mut Value| {
            if let Some(revision) = request.pointer_mut("/body/revision") {
                *revision = REVISION.into();
            }
        };
        self.daemon.resolve(step, correct).await
    }
}

/// Returns the policies of a file without its settings, and a second version with more attempts and a wider spread.
pub(super) fn versions(file: &str, policies: &PolicySet) -> (String, String) {
    let second =
        file.replacen("attempts = 12", "attempts = 20", 1).replacen("spread = \"1s\"", "spread = \"2s\"", 1);
    // A deployed policy file contains no settings.
    let second = PolicySet::from_toml(&second).unwrap_or_else(|_| policies.clone());
    (policies.to_toml(), second.to_toml())
}
