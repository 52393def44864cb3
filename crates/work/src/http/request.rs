//! The request of an HTTP step, validated.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::{HttpStep, Statuses};
use crate::settings::MAX_TIMEOUT;

const MAX_HEADERS: usize = 64;
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// Words in the names of headers with secrets, which must not be stored in a step.
const SECRET_WORDS: [&str; 12] = [
    "apikey",
    "auth",
    "authentication",
    "authorization",
    "cookie",
    "cookie2",
    "credential",
    "credentials",
    "passwd",
    "password",
    "secret",
    "token",
];
/// The word before `-key` that makes the name of a header one with a secret.
const SECRET_KEYS: [&str; 6] = ["access", "api", "functions", "license", "private", "subscription"];

/// Returns whether a header has a secret, by the words of its name: `X-Api-Key`, `X-Vault-Token`, `Cookie`.
fn is_secret(name: &HeaderName) -> bool {
    let words: Vec<&str> = name.as_str().split(['-', '_', '.']).collect();
    words.iter().any(|word| SECRET_WORDS.contains(word))
        || words.windows(2).any(|pair| matches!(pair, [kind, "key"] if SECRET_KEYS.contains(kind)))
}

/// Headers of the transport, and headers that only the worker can set.
const OURS: [&str; 12] = [
    "connection",
    "content-length",
    "holdoff-attempt",
    "holdoff-fencing-token",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The reason why a request is invalid. Nothing was sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The method is invalid, or not permitted for steps.
    #[error("`{0}` is not a permitted method: use an upper-case method such as GET or POST")]
    Method(String),
    /// The URL cannot be parsed.
    #[error("invalid URL: {0}")]
    Url(String),
    /// The scheme of the URL is not HTTP.
    #[error("the URL has the scheme `{0}`: use http or https")]
    Scheme(String),
    /// The URL contains a user name or a password.
    #[error(
        "the URL contains a user name or a password, and a step must not contain secrets: name a credential instead"
    )]
    UrlSecret,
    /// There are too many headers.
    #[error("there are {0} headers, and the limit is 64")]
    TooManyHeaders(usize),
    /// The name of a header is invalid.
    #[error("`{0}` is not a valid header name")]
    HeaderName(String),
    /// The value of a header contains invalid characters.
    #[error("the value of header `{0}` contains characters that cannot be sent")]
    HeaderValue(String),
    /// The header would store a secret.
    #[error("header `{0}` would store a secret in the step: name a credential instead")]
    HeaderSecret(String),
    /// The header is reserved for holdoff.
    #[error("header `{0}` is set by holdoff: remove it")]
    HeaderReserved(String),
    /// Two headers differ only in upper and lower case.
    #[error("header `{0}` occurs twice: keep one")]
    HeaderTwice(String),
    /// The body cannot be serialised as JSON.
    #[error("the body cannot be serialized as JSON: {0}")]
    Body(String),
    /// There are two bodies.
    #[error("both `body` and `body_text` are set: keep one")]
    TwoBodies,
    /// The timeout is out of range.
    #[error("the timeout is out of range: expected 1ms to 1h")]
    Timeout,
    /// An expected status is out of range.
    #[error("`{0}` cannot be expected: use statuses from 200 to 599")]
    Status(String),
}

/// A valid request.
pub(super) struct PreparedRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) destination: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
    pub(super) timeout: Option<Duration>,
    pub(super) expect: Vec<Statuses>,
    pub(super) credential: Option<String>,
}

impl HttpStep {
    pub(super) fn prepare(&self) -> Result<PreparedRequest, InvalidRequest> {
        let method = method(&self.method)?;
        let url = url(&self.url)?;
        let mut headers = headers(self)?;
        let body = body(self)?;
        if self.body.is_some() && !headers.contains_key(CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if self.timeout.is_some_and(|timeout| !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout)) {
            return Err(InvalidRequest::Timeout);
        }
        if let Some(wrong) = self.expect.iter().find(|statuses| !statuses.is_valid()) {
            return Err(InvalidRequest::Status(wrong.to_string()));
        }
        let expect = if self.expect.is_empty() { vec![Statuses::SUCCESS] } else { self.expect.clone() };
        let (timeout, credential) = (self.timeout, self.credential.clone());
        let destination = destination(&url);
        Ok(PreparedRequest { method, url, destination, headers, body, timeout, expect, credential })
    }
}

fn method(text: &str) -> Result<Method, InvalidRequest> {
    let wrong = || InvalidRequest::Method(text.chars().take(32).collect());
    let is_plain = text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if !is_plain || matches!(text, "CONNECT" | "TRACE") {
        return Err(wrong());
    }
    Method::from_bytes(text.as_bytes()).map_err(|_| wrong())
}

fn url(text: &str) -> Result<Url, InvalidRequest> {
    let url = Url::parse(text).map_err(|error| InvalidRequest::Url(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(InvalidRequest::Scheme(url.scheme().chars().take(32).collect()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(InvalidRequest::UrlSecret);
    }
    Ok(url)
}

/// Returns the host, with the port unless it is the scheme's default. The trailing dot of an absolute name is
/// removed.
pub(super) fn destination(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn headers(step: &HttpStep) -> Result<HeaderMap, InvalidRequest> {
    if step.headers.len() > MAX_HEADERS {
        return Err(InvalidRequest::TooManyHeaders(step.headers.len()));
    }
    let mut headers = HeaderMap::new();
    for (text, value) in &step.headers {
        let shown = || text.chars().filter(|c| !c.is_control()).take(64).collect::<String>();
        let name =
            HeaderName::from_bytes(text.as_bytes()).map_err(|_| InvalidRequest::HeaderName(shown()))?;
        if is_secret(&name) {
            return Err(InvalidRequest::HeaderSecret(shown()));
        }
        if OURS.contains(&name.as_str()) {
            return Err(InvalidRequest::HeaderReserved(shown()));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| InvalidRequest::HeaderValue(shown()))?;
        value.set_sensitive(true);
        if headers.insert(name, value).is_some() {
            return Err(InvalidRequest::HeaderTwice(shown()));
        }
    }
    Ok(headers)
}

fn body(step: &HttpStep) -> Result<Option<Bytes>, InvalidRequest> {
    if let Some(wrong) = &step.not_json {
        return Err(InvalidRequest::Body(wrong.clone()));
    }
    match (&step.body, &step.body_text) {
        (Some(_), Some(_)) => Err(InvalidRequest::TwoBodies),
        (Some(json), None) => Ok(Some(Bytes::copy_from_slice(json.get().as_bytes()))),
        (None, Some(text)) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(json: &str) -> InvalidRequest {
        serde_json::from_str::<HttpStep>(json).unwrap().check().unwrap_err()
    }

    #[test]
    fn a_step_with_only_a_url_is_a_post() {
        let step: HttpStep = serde_json::from_str(r#"{"url":"https://API.example.com./x?q=1"}"#).unwrap();
        let prepared = step.prepare().unwrap();
        assert_eq!(prepared.method, Method::POST);
        assert_eq!(prepared.destination, "api.example.com");
        assert_eq!(prepared.expect, [Statuses::SUCCESS]);
        assert_eq!(format!("{step:?}"), r#"HttpStep { method: "POST", destination: "api.example.com", .. }"#);
    }

    #[test]
    fn a_destination_includes_a_non_default_port() {
        let destination = |url: &str| HttpStep::get(url).destination().unwrap();
        assert_eq!(destination("https://h:443/"), "h");
        assert_eq!(destination("https://h:80/"), "h:80");
        assert_eq!(destination("http://[::1]:8080/"), "[::1]:8080");
    }

    #[test]
    fn a_json_body_is_sent_unchanged() {
        let text = r#"{"url":"http://h/","body":{"b":18446744073709551616,"a":1.10}}"#;
        let step: HttpStep = serde_json::from_str(text).unwrap();
        let sent = step.prepare().unwrap();
        assert_eq!(sent.body.unwrap(), r#"{"b":18446744073709551616,"a":1.10}"#);
        assert_eq!(sent.headers[CONTENT_TYPE], "application/json");
        let value: serde_json::Value = serde_json::from_str(r#"{"url":"http://h/","body":[1,2]}"#).unwrap();
        let step: HttpStep = serde_json::from_value(value).unwrap();
        assert_eq!(step.prepare().unwrap().body.unwrap(), "[1,2]");
    }

    #[test]
    fn a_step_with_a_secret_is_rejected() {
        assert_eq!(wrong(r#"{"url":"http://u:p@h/"}"#), InvalidRequest::UrlSecret);
        for name in [
            "Authorization",
            "COOKIE",
            "proxy-authorization",
            "X-Api-Key",
            "apikey",
            "X-Auth-Token",
            "Private-Token",
            "Ocp-Apim-Subscription-Key",
            "X-Amz-Security-Token",
            "x_client_secret",
        ] {
            let step = HttpStep::get("http://h/").header(name, "hush");
            let error = step.check().unwrap_err();
            assert_eq!(error, InvalidRequest::HeaderSecret(name.to_owned()));
            assert!(!error.to_string().contains("hush"));
        }
    }

    #[test]
    fn a_header_that_only_resembles_a_secret_is_sent() {
        for name in ["Accept", "X-Author", "X-Key", "X-Request-Key", "X-Tokens-Used", "ETag"] {
            assert_eq!(HttpStep::get("http://h/").header(name, "x").check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn an_invalid_request_is_rejected_with_its_reason() {
        use InvalidRequest as I;
        let name = |name: &str| HttpStep::get("http://h/").header(name, "x").check().unwrap_err();
        assert_eq!(wrong(r#"{"url":"ftp://h/"}"#), I::Scheme("ftp".into()));
        assert!(matches!(wrong(r#"{"url":"nonsense"}"#), I::Url(_)));
        assert_eq!(wrong(r#"{"url":"http://h/","method":"get"}"#), I::Method("get".into()));
        assert_eq!(wrong(r#"{"url":"http://h/","method":"CONNECT"}"#), I::Method("CONNECT".into()));
        assert_eq!(wrong(r#"{"url":"http://h/","method":""}"#), I::Method(String::new()));
        assert_eq!(wrong(r#"{"url":"http://h/","body":1,"body_text":"x"}"#), I::TwoBodies);
        assert_eq!(wrong(r#"{"url":"http://h/","timeout":"2h"}"#), I::Timeout);
        assert_eq!(wrong(r#"{"url":"http://h/","timeout":"1us"}"#), I::Timeout);
        assert_eq!(name("Idempotency-Key"), I::HeaderReserved("Idempotency-Key".into()));
        assert_eq!(name("Content-Length"), I::HeaderReserved("Content-Length".into()));
        assert_eq!(name("a b"), I::HeaderName("a b".into()));
        let twice = HttpStep::get("http://h/").header("x-a", "1").header("X-A", "2");
        assert!(matches!(twice.check(), Err(I::HeaderTwice(_))));
        let split = HttpStep::get("http://h/").header("x-a", "1\r\nx-b: 2");
        assert_eq!(split.check(), Err(I::HeaderValue("x-a".into())));
        assert_eq!(HttpStep::get("http://h/").expect_status(42).check(), Err(I::Status("42".into())));
        let many = (0..65).fold(HttpStep::get("http://h/"), |step, n| step.header(format!("x-{n}"), "x"));
        assert_eq!(many.check(), Err(I::TooManyHeaders(65)));
    }

    #[test]
    fn unknown_fields_and_invalid_durations_are_rejected() {
        for text in [
            r#"{"url":"http://h/","bdoy":1}"#,
            r#"{"url":"http://h/","not_json":"x"}"#,
            r#"{"url":"http://h/","timeout":"10"}"#,
            r#"{"url":"http://h/","expect":["7xx"]}"#,
            r#"{"method":"GET"}"#,
        ] {
            assert!(serde_json::from_str::<HttpStep>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_body_that_is_not_json_is_never_serialised() {
        let step = HttpStep::post("http://h/").json(&std::collections::BTreeMap::from([((1, 2), 3)]));
        assert!(matches!(step.check(), Err(InvalidRequest::Body(_))));
        assert!(serde_json::to_string(&step).is_err());
    }
}
