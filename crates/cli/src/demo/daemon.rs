//! The daemon as an operator reaches it: by HTTP, as everybody else.

use std::time::Duration;

use reqwest::header::{ETAG, IF_MATCH};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

/// Longer than the daemon takes for any answer.
const TIMEOUT: Duration = Duration::from_secs(40);

/// The daemon, asked once for everything: whoever counts must know what was repeated.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    http: reqwest::Client,
    url: String,
}

/// What the daemon did not do, and why.
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

    /// Decides a conflict as a person would: looks at the step, corrects its request, and sends it back, unless somebody
    /// else has decided meanwhile.
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

/// The answer, and its `ETag`.
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
