//! An HTTP step, as it is stored.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use holdoff_policy::{format_duration, parse_duration};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::InvalidRequest;
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
    pub(crate) timeout: Option<Duration>,
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
        self.payload_and_destination().map(|(payload, _)| payload)
    }

    /// Checks the request once, and returns the payload of a step and its destination.
    pub(crate) fn payload_and_destination(&self) -> Result<(Payload, String), InvalidRequest> {
        let destination = self.destination()?;
        let payload = Payload::json(self).map_err(|error| InvalidRequest::Body(error.to_string()))?;
        Ok((payload, destination))
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

/// One status or a range: `200`, `"2xx"` or `"200-204"`.
///
/// ```
/// use holdoff_work::Statuses;
///
/// assert_eq!("2xx".parse(), Ok(Statuses::from(200..=299)));
/// assert_eq!("200-204".parse(), Ok(Statuses::from(200..=204)));
/// assert!("often".parse::<Statuses>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statuses {
    first: u16,
    last: u16,
}

impl Statuses {
    /// The expected statuses of a step that names none.
    pub(super) const SUCCESS: Self = Self { first: 200, last: 299 };

    pub(super) fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }

    /// Returns whether the range contains a redirect, which then must not be followed.
    pub(super) fn has_redirect(self) -> bool {
        self.first <= 399 && self.last >= 300
    }

    /// Returns whether all statuses can end an exchange.
    pub(super) fn is_valid(self) -> bool {
        self.first >= 200 && self.first <= self.last && self.last <= 599
    }
}

impl From<u16> for Statuses {
    fn from(status: u16) -> Self {
        Self { first: status, last: status }
    }
}

impl From<RangeInclusive<u16>> for Statuses {
    fn from(range: RangeInclusive<u16>) -> Self {
        Self { first: *range.start(), last: *range.end() }
    }
}

impl FromStr for Statuses {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "not a status from 200 to 599, a hundred such as \"2xx\" or a range such as \"200-204\"";
        let number = |text: &str| text.trim().parse::<u16>().map_err(|_| WRONG);
        let statuses = if let Some(hundred) = text.strip_suffix("xx") {
            let first = number(hundred)?.checked_mul(100).ok_or(WRONG)?;
            Self { first, last: first.saturating_add(99) }
        } else if let Some((first, last)) = text.split_once('-') {
            Self { first: number(first)?, last: number(last)? }
        } else {
            Self::from(number(text)?)
        };
        if statuses.is_valid() { Ok(statuses) } else { Err(WRONG) }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = *self;
        if first == last {
            write!(f, "{first}")
        } else if first.is_multiple_of(100) && last == first.saturating_add(99) {
            write!(f, "{}xx", first / 100)
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.first == self.last {
            serializer.serialize_u16(self.first)
        } else {
            serializer.collect_str(self)
        }
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText)
    }
}

struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = Statuses;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a status such as 200, \"2xx\" or \"200-204\"")
    }

    fn visit_u64<E: de::Error>(self, status: u64) -> Result<Statuses, E> {
        self.visit_str(&status.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Statuses, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_round_trip() {
        for text in ["200", "\"2xx\"", "\"200-204\"", "\"200-599\""] {
            let statuses: Statuses = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&statuses).unwrap(), text);
        }
        for text in
            ["199", "600", "\"6xx\"", "\"999xx\"", "\"204-200\"", "\"xx\"", "\"\"", "true", "-200", "200.5"]
        {
            assert!(serde_json::from_str::<Statuses>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn redirects_in_a_range_are_detected() {
        assert!(Statuses::from(302).has_redirect());
        assert!(Statuses::from(200..=599).has_redirect());
        assert!(!Statuses::SUCCESS.has_redirect());
        assert!(!Statuses::from(400).has_redirect());
    }
}
