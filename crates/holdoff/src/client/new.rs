//! Tasks as they are sent.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_policy::format_duration;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A task: one step, or a graph of them.
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
    http: Option<Request>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time")]
    delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
}

/// A request that the daemon makes.
#[derive(Clone, Debug, Serialize)]
pub struct Request {
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
    /// A task of one step.
    pub fn of(step: NewStep) -> Self {
        Self { one: Some(step), ..Self::default() }
    }

    /// A task of one step, for whoever handles this operation.
    pub fn new(operation: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self::of(NewStep::new(operation).payload(payload))
    }

    /// A task of one step: the daemon posts to this URL.
    pub fn call(operation: impl Into<String>, url: impl Into<String>) -> Self {
        Self::of(NewStep::new(operation).http(Request::post(url)))
    }

    /// A task of steps that wait for each other.
    pub fn graph() -> Self {
        Self::default()
    }

    /// One more step of a graph, under a name for others to wait for.
    #[must_use]
    pub fn step(mut self, name: impl Into<String>, step: NewStep) -> Self {
        self.steps.push(NewStep { name: Some(name.into()), ..step });
        self
    }

    /// Its namespace; `default` unless it is said.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The key under which it is taken in once.
    #[must_use]
    pub fn dedup(mut self, key: impl Into<String>) -> Self {
        self.dedup = Some(key.into());
        self
    }

    /// For how long the key is kept.
    #[must_use]
    pub fn dedup_retention(mut self, time: Duration) -> Self {
        self.dedup_retention = Some(time);
        self
    }
}

impl NewStep {
    /// A step for whoever handles this operation.
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
            policy: None,
        }
    }

    /// A request that the daemon makes, instead of a payload that a worker handles.
    #[must_use]
    pub fn http(mut self, request: Request) -> Self {
        self.http = Some(request);
        self
    }

    /// What goes into it.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Value>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// The name of a step that must have succeeded before.
    #[must_use]
    pub fn after(mut self, step: impl Into<String>) -> Self {
        self.after.push(step.into());
        self
    }

    /// Its queue; `default` unless it is said.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// From 0, which goes first, to 9.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// How long it waits before it runs.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// The policy that decides when it is tried again, instead of its operation's.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<String>) -> Self {
        self.policy = Some(policy.into());
        self
    }
}

impl Request {
    /// A POST to this URL.
    pub fn post(url: impl Into<String>) -> Self {
        let (url, headers) = (url.into(), BTreeMap::new());
        Self { url, method: None, headers, body: None, credential: None, timeout: None }
    }

    /// Another method.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// A header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// What is sent, as JSON.
    #[must_use]
    pub fn json(mut self, body: impl Into<Value>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The name of a credential in the daemon's settings, whose token is sent.
    #[must_use]
    pub fn credential(mut self, name: impl Into<String>) -> Self {
        self.credential = Some(name.into());
        self
    }

    /// How long the answer may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// As in `"5s"`.
#[expect(clippy::ref_option, reason = "serde calls it so")]
pub(super) fn time<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_str(&format_duration(*time)),
        None => serializer.serialize_none(),
    }
}
