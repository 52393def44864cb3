//! An HTTP step, as it is stored.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use holdoff_policy::{format_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{InvalidRequest, Statuses};
use crate::Payload;

/// An HTTP step: the request in its payload.
///
/// ```
/// use holdoff_work::HttpStep;
/// use std::time::Duration;
///
/// let step = HttpStep::post("https://api.example.com/orders")
///     .json(&["a", "b"])
///     .header("accept", "application/json")
///     .timeout(Duration::from_secs(10))
///     .expect_status(201)
///     .credential("shop");
/// let payload = step.payload()?;
/// # assert_eq!(payload.read::<HttpStep>().unwrap().payload()?, payload);
/// # Ok::<(), holdoff_work::InvalidRequest>(())
/// ```
///
/// The headers and the body may contain secrets, so the `Debug` form shows only the method and the destination.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpStep {
    #[serde(default = "post")]
    pub(super) method: String,
    pub(super) url: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers: BTreeMap<String, String>,
    /// Kept as it was written, so that the destination receives the same digits and the same order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) body_text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "write_duration", deserialize_with = "read_duration")]
    pub(super) timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) expect: Vec<Statuses>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) credential: Option<String>,
    /// The reason why the body given in Rust is not JSON. Such a step cannot be serialised either.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none", serialize_with = "refuse")]
    pub(super) not_json: Option<String>,
}

fn post() -> String {
    "POST".to_owned()
}

impl HttpStep {
    /// Creates a request with this method.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: BTreeMap::new(),
            body: None,
            body_text: None,
            timeout: None,
            expect: Vec::new(),
            credential: None,
            not_json: None,
        }
    }

    /// Creates a `POST` request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// Creates a `GET` request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// Creates a `PUT` request.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }

    /// Creates a `DELETE` request.
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new("DELETE", url)
    }

    /// Sends this value as JSON. If it cannot be serialised, [`check`](Self::check) reports the error.
    #[must_use]
    pub fn json<T: Serialize + ?Sized>(mut self, body: &T) -> Self {
        match serde_json::value::to_raw_value(body) {
            Ok(body) => (self.body, self.not_json) = (Some(body), None),
            Err(error) => (self.body, self.not_json) = (None, Some(error.to_string())),
        }
        self
    }

    /// Sends this text as the body.
    #[must_use]
    pub fn text(mut self, body: impl Into<String>) -> Self {
        self.body_text = Some(body.into());
        self
    }

    /// Sends this header, and replaces a header of the same name.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the maximum duration of the request, including the body of the response.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Expects this status or one of this range. Further calls add further statuses. By default any `2xx` is
    /// expected.
    #[must_use]
    pub fn expect_status(mut self, statuses: impl Into<Statuses>) -> Self {
        self.expect.push(statuses.into());
        self
    }

    /// Sends the access token of this credential, which the settings define by name.
    #[must_use]
    pub fn credential(mut self, name: impl Into<String>) -> Self {
        self.credential = Some(name.into());
        self
    }

    /// Checks whether the request is valid.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        self.prepare().map(drop)
    }

    /// Returns the host that the request is sent to, with the port unless it is the scheme's default. Limits apply
    /// per destination.
    pub fn destination(&self) -> Result<String, InvalidRequest> {
        self.prepare().map(|prepared| prepared.destination)
    }

    /// Checks the request and returns it as the payload of a step.
    pub fn payload(&self) -> Result<Payload, InvalidRequest> {
        self.check()?;
        Payload::json(self).map_err(|error| InvalidRequest::Body(error.to_string()))
    }
}

impl fmt::Debug for HttpStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let destination = self.destination().unwrap_or_default();
        f.debug_struct("HttpStep")
            .field("method", &self.method)
            .field("destination", &destination)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn write_duration<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(format_duration).serialize(serializer)
}

fn read_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let read = |text: String| {
        parse_duration(&text).map_err(|wrong| format!("`{text}` is not a duration such as \"10s\": {wrong}"))
    };
    text.map(read).transpose().map_err(serde::de::Error::custom)
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn refuse<S: Serializer>(wrong: &Option<String>, _: S) -> Result<S::Ok, S::Error> {
    Err(serde::ser::Error::custom(wrong.as_deref().unwrap_or_default()))
}
