//! The daemon as an operator reaches it: over the same HTTP API as any client.

use std::time::Duration;

use reqwest::header::{ETAG, IF_MATCH};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

/// Longer than the daemon takes for any response.
const TIMEOUT: Duration = Duration::from_secs(40);

/// An HTTP client for the daemon. It never retries, so that the demo can count every request.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    http: reqwest::Client,
    url: String,
}

/// The result of a request, with the reason if it failed.
pub(super) type Asked<T> = Result<T, String>;

impl Daemon {
    pub(super) fn new(url: &str) -> Asked<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build();
        Ok(Self { http: http.map_err(|error| error.to_string())?, url: url.to_owned() })
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Asked<Value> {
        Ok(answer(self.request(Method::POST, path).json(body)).await?.1)
    }

    pub(super) async fn get(&self, path: &str) -> Asked<Value> {
        Ok(answer(self.request(Method::GET, path)).await?.1)
    }

    /// Resolves a conflict as an operator would: it reads the step, corrects its request, and submits the new
    /// payload. The `If-Match` header makes this fail if another operator has resolved the conflict in the meantime.
    pub(super) async fn resolve(&self, step: &str, correct: impl FnOnce(&mut Value)) -> Asked<()> {
        let (etag, mut seen) = answer(self.request(Method::GET, &format!("/v1/steps/{step}"))).await?;
        let payload = seen.pointer_mut("/step/payload").map(Value::take);
        let mut payload = payload.ok_or_else(|| format!("step {step} has no payload"))?;
        correct(&mut payload);
        let decide = self.request(Method::POST, &format!("/v1/conflicts/{step}/resolve"));
        answer(decide.header(IF_MATCH, etag).json(&json!({ "payload": payload }))).await.map(drop)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }
}

/// Sends the request. Returns the `ETag` and the body of the response.
async fn answer(request: RequestBuilder) -> Asked<(String, Value)> {
    let response = request.send().await.map_err(|error| error.to_string())?;
    let (status, path) = (response.status(), response.url().path().to_owned());
    let etag =
        response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let body: Value = response.json().await.map_err(|error| error.to_string())?;
    if status.is_success() {
        return Ok((etag, body));
    }
    let detail = body.get("detail").and_then(Value::as_str).unwrap_or_default();
    Err(format!("{path} was answered with {status}: {detail}"))
}
