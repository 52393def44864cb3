//! Tasks to submit.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_policy::format_duration;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A task to submit: one step, or a graph of steps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NewTask {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dedup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time")]
    dedup_retention: Option<Duration>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<NewStep>,
    #[serde(flatten)]
    one: Option<NewStep>,
}

/// A step of a task.
#[derive(Clone, Debug, Serialize)]
pub struct NewStep {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    operation: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<HttpRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time")]
    delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time")]
    expires_in: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
}

/// An HTTP request that the daemon sends.
#[derive(Clone, Debug, Serialize)]
pub struct HttpRequest {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time")]
    timeout: Option<Duration>,
}

impl NewTask {
    /// Creates a task of one step.
    pub fn of(step: NewStep) -> Self {
        Self { one: Some(step), ..Self::default() }
    }

    /// Creates a task of one step for the workers that handle this operation.
    pub fn new(operation: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self::of(NewStep::new(operation).payload(payload))
    }

    /// Creates a task of one step: the daemon sends a POST to this URL.
    pub fn call(operation: impl Into<String>, url: impl Into<String>) -> Self {
        Self::of(NewStep::new(operation).http(HttpRequest::post(url)))
    }

    /// Creates a task whose steps may depend on each other.
    pub fn graph() -> Self {
        Self::default()
    }

    /// Adds a step to a graph, under a name that other steps can depend on.
    #[must_use]
    pub fn step(mut self, name: impl Into<String>, step: NewStep) -> Self {
        self.steps.push(NewStep { name: Some(name.into()), ..step });
        self
    }

    /// Sets the namespace; the default is `default`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the deduplication key: the daemon accepts one task for each key.
    #[must_use]
    pub fn dedup(mut self, key: impl Into<String>) -> Self {
        self.dedup = Some(key.into());
        self
    }

    /// Sets the time for which the daemon remembers the key.
    #[must_use]
    pub fn dedup_retention(mut self, time: Duration) -> Self {
        self.dedup_retention = Some(time);
        self
    }
}

impl NewStep {
    /// Creates a step for the workers that handle this operation.
    pub fn new(operation: impl Into<String>) -> Self {
        Self {
            name: None,
            operation: operation.into(),
            after: Vec::new(),
            http: None,
            payload: None,
            queue: None,
            priority: None,
            delay: None,
            expires_in: None,
            policy: None,
        }
    }

    /// Sets an HTTP request that the daemon sends, in place of a payload for a worker.
    #[must_use]
    pub fn http(mut self, request: HttpRequest) -> Self {
        self.http = Some(request);
        self
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Value>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// Adds a dependency: the named step must succeed before this step runs.
    #[must_use]
    pub fn after(mut self, step: impl Into<String>) -> Self {
        self.after.push(step.into());
        self
    }

    /// Sets the queue; the default is `default`.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the priority, from 0 (first) to 9.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the delay before the step runs.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Sets the start-by time, counted from the submission: no attempt begins later, and a ready step then fails.
    #[must_use]
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }

    /// Sets the policy of the step's retries, in place of its operation's policy.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<String>) -> Self {
        self.policy = Some(policy.into());
        self
    }
}

impl HttpRequest {
    /// Creates a POST to this URL.
    pub fn post(url: impl Into<String>) -> Self {
        let (url, headers) = (url.into(), BTreeMap::new());
        Self { url, method: None, headers, body: None, credential: None, timeout: None }
    }

    /// Sets another method.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the JSON body.
    #[must_use]
    pub fn json(mut self, body: impl Into<Value>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets the name of a credential in the daemon's settings. The request carries its API token.
    #[must_use]
    pub fn credential(mut self, name: impl Into<String>) -> Self {
        self.credential = Some(name.into());
        self
    }

    /// Sets the timeout of the response.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// Serialises a duration as text, such as `"5s"`.
#[expect(clippy::ref_option, reason = "serde calls it so")]
pub(super) fn time<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_str(&format_duration(*time)),
        None => serializer.serialize_none(),
    }
}
