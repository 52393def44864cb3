//! A simulated operator, whose actions fill the audit log, and its HTTP client.

use std::time::Duration;

use holdoff_policy::PolicySet;
use reqwest::header::{ETAG, IF_MATCH};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::output::ProgressLog;
use super::plan::{OperatorAction, operator_actions};
use super::traffic::{NEWSLETTERS, REVISION};

/// The number of conflicts that stay open for the user to look at.
const LEFT_OPEN: usize = 6;
/// The maximum number of conflicts resolved in one action.
const MAX_RESOLVED: usize = 100;

pub(super) struct Operator {
    pub(super) daemon: ApiClient,
    /// The policies, and a second version with one change.
    pub(super) file: String,
    pub(super) second: String,
    pub(super) progress: ProgressLog,
}

impl Operator {
    /// Performs every action that is scheduled before `until`.
    pub(super) async fn work(self, since: Instant, until: Option<Duration>) {
        for (at, action) in operator_actions().take_while(|(at, _)| until.is_none_or(|until| *at < until)) {
            tokio::time::sleep_until(since + at).await;
            match self.act(action).await {
                Ok(Some(what)) => self.progress.print(&what),
                Ok(None) => {}
                Err(why) => self.progress.print(&format!("the operator's action failed: {why}")),
            }
        }
    }

    /// Performs an action. Returns a message if the action is worth reporting.
    pub(super) async fn act(&self, action: OperatorAction) -> ApiResult<Option<String>> {
        match action {
            OperatorAction::ResolveOne => {
                let open = self.conflicts().await?;
                let Some(oldest) = open.last() else { return Ok(None) };
                self.resolve(oldest).await?;
                Ok(Some("the operator resolved a conflict with the current revision".to_owned()))
            }
            OperatorAction::ResolveMost => {
                for step in self.conflicts().await?.iter().skip(LEFT_OPEN) {
                    self.resolve(step).await?;
                }
                Ok(None)
            }
            OperatorAction::Deploy { is_second } => {
                let file = if is_second { &self.second } else { &self.file };
                self.daemon.post("/v1/policies", &json!({ "file": file })).await?;
                Ok(is_second.then(|| "the operator deployed another version of the policies".to_owned()))
            }
            OperatorAction::RetryFailed => {
                let filter = json!({ "state": ["failed"], "operation": "legacy.*" });
                self.daemon.post("/v1/steps/retry", &json!({ "filter": filter })).await?;
                Ok(Some("the operator retried the failed steps, which fail again".to_owned()))
            }
            OperatorAction::DiscardOld => {
                let filter = json!({ "state": ["failed"], "operation": "legacy.*", "older_than": "5m" });
                self.daemon.post("/v1/steps/discard", &json!({ "filter": filter })).await.map(|_| None)
            }
            OperatorAction::Newsletters { is_paused } => {
                let verb = if is_paused { "pause" } else { "resume" };
                let path = format!("/v1/queues/{verb}");
                self.daemon.post(&path, &json!({ "queue": NEWSLETTERS })).await.map(|_| None)
            }
        }
    }

    /// Lists the conflicted steps, the newest first.
    async fn conflicts(&self) -> ApiResult<Vec<String>> {
        let page = self.daemon.get(&format!("/v1/conflicts?operation=crm.*&limit={MAX_RESOLVED}")).await?;
        let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Ok(items.iter().filter_map(|step| Some(step.get("id")?.as_str()?.to_owned())).collect())
    }

    async fn resolve(&self, step: &str) -> ApiResult<()> {
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

/// Longer than the daemon takes for any response.
const TIMEOUT: Duration = Duration::from_secs(40);

/// An HTTP client for the daemon. It never retries, so that the demo can count every request.
#[derive(Clone, Debug)]
pub(super) struct ApiClient {
    http: reqwest::Client,
    url: String,
}

/// The result of a request, with the reason if it failed.
pub(super) type ApiResult<T> = Result<T, String>;

impl ApiClient {
    pub(super) fn new(url: &str) -> ApiResult<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build();
        Ok(Self { http: http.map_err(|error| error.to_string())?, url: url.to_owned() })
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> ApiResult<Value> {
        Ok(send(self.request(Method::POST, path).json(body)).await?.1)
    }

    pub(super) async fn get(&self, path: &str) -> ApiResult<Value> {
        Ok(send(self.request(Method::GET, path)).await?.1)
    }

    /// Resolves a conflict as an operator would: it reads the step, corrects its request, and submits the new
    /// payload. The `If-Match` header makes this fail if another operator has resolved the conflict in the meantime.
    pub(super) async fn resolve(&self, step: &str, correct: impl FnOnce(&mut Value)) -> ApiResult<()> {
        let (etag, mut seen) = send(self.request(Method::GET, &format!("/v1/steps/{step}"))).await?;
        let payload = seen.pointer_mut("/step/payload").map(Value::take);
        let mut payload = payload.ok_or_else(|| format!("step {step} has no payload"))?;
        correct(&mut payload);
        let decide = self.request(Method::POST, &format!("/v1/conflicts/{step}/resolve"));
        send(decide.header(IF_MATCH, etag).json(&json!({ "payload": payload }))).await.map(drop)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }
}

/// Sends the request. Returns the `ETag` and the body of the response.
async fn send(request: RequestBuilder) -> ApiResult<(String, Value)> {
    let response = request.send().await.map_err(|error| error.to_string())?;
    let (status, path) = (response.status(), response.url().path().to_owned());
    let etag =
        response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let body: Value = response.json().await.map_err(|error| error.to_string())?;
    if status.is_success() {
        return Ok((etag, body));
    }
    let detail = body.get("detail").and_then(Value::as_str).unwrap_or_default();
    Err(format!("{path} returned {status}: {detail}"))
}
