//! Extractors of handlers, and the parsing of their input. Invalid input becomes a problem response.

use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use holdoff_policy::{is_unprintable, parse_duration};
use holdoff_work::{StepId, TaskId};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::problem::{Kind, Problem};

/// The rules for the bodies of some routes: the maximum size, and the kind of problem that an invalid body is. Routes
/// without rules of their own accept [`App::max_body`] bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyRules {
    pub(super) max_bytes: usize,
    pub(super) invalid: Kind,
}

impl BodyRules {
    /// Applies the rules to these routes.
    pub(super) fn apply(self, routes: OpenApiRouter<App>) -> OpenApiRouter<App> {
        routes.layer(DefaultBodyLimit::max(self.max_bytes)).layer(Extension(self))
    }

    fn of(request: &Request, app: &App) -> Self {
        let default = || Self { max_bytes: app.max_body(), invalid: Kind::InvalidBody };
        request.extensions().get::<Self>().copied().unwrap_or_else(default)
    }
}

/// A JSON body of this type.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let rules = BodyRules::of(&request, app);
        let JsonBytes(bytes) = JsonBytes::from_request(request, app).await?;
        parse_json(&bytes).map(Self).map_err(|why| Problem::new(rules.invalid, why))
    }
}

/// The bytes of a JSON body, for handlers that parse it themselves.
pub(super) struct JsonBytes(pub(super) Bytes);

impl FromRequest<App> for JsonBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let rules = BodyRules::of(&request, app);
        check_content_type(request.headers())?;
        let body = Bytes::from_request(request, app).await;
        body.map(Self).map_err(|rejection| unreadable(&rejection, rules))
    }
}

/// Requires the content type of JSON. A browser sends this type to another origin only after a preflight request, which
/// the daemon does not answer.
fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let named = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = named.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        Kind::NotJson,
        "expected the header `Content-Type: application/json` (curl has `--json`)",
    ))
}

fn unreadable(rejection: &BytesRejection, rules: BodyRules) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let limit = rules.max_bytes;
        return Problem::new(Kind::TooLarge, format!("the body exceeds {limit} bytes; nothing was stored"));
    }
    Problem::new(rules.invalid, "the body arrived incomplete; nothing was stored")
}

/// Parses JSON. The error names the invalid field.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        if path == "." { error.inner().to_string() } else { format!("{path}: {}", error.inner()) }
    })?;
    json.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Returns the caller's `traceparent`. A malformed one is ignored, as the standard requires.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let lengths = parts.iter().map(|part| part.len());
    (lengths.eq([2, 32, 16, 2]) && parts.iter().all(|part| is_hex(part))).then_some(text)
}

/// A query string of this type.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::from_request_parts(parts, app).await {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => Err(Problem::new(Kind::InvalidQuery, rejection.body_text())),
        }
    }
}

/// The task that a path names by `{id}`.
pub(crate) struct TaskPath(pub(crate) TaskId);

impl FromRequestParts<App> for TaskPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(id) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| Problem::new(Kind::InvalidId, rejection.body_text()))?;
        let id = id.parse().map_err(|_| Problem::new(Kind::InvalidId, "expected a UUID"))?;
        Ok(Self(id))
    }
}

/// The step that a path names by `{task}/{number}`.
pub(crate) struct StepPath(pub(crate) StepId);

impl FromRequestParts<App> for StepPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path((task, number)) = Path::<(String, String)>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| Problem::new(Kind::InvalidId, rejection.body_text()))?;
        let step = format!("{task}/{number}").parse();
        let step =
            step.map_err(|_| Problem::new(Kind::InvalidId, "expected a UUID, and a number from 0 up"))?;
        Ok(Self(step))
    }
}

/// A duration such as `"5s"`.
pub(crate) struct HumanDuration(pub(crate) Duration);

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let invalid = |why| {
            let expected = "expected a duration such as \"5s\" or \"2m\"";
            D::Error::custom(format!("invalid duration {text:?}, {expected}: {why}"))
        };
        parse_duration(&text).map(Self).map_err(invalid)
    }
}

/// Checks a name or another short text: every store must be able to keep it, and a log to show it.
pub(super) fn check_text(what: &str, text: &str, max_chars: usize) -> Result<(), String> {
    let length = text.chars().count();
    if length > max_chars || text.chars().any(is_unprintable) {
        return Err(format!(
            "{what}: expected at most {max_chars} characters, without control or bidi characters"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_traceparent_is_forwarded() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            traceparent(&headers).map(str::to_owned)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good).as_deref(), Some(good));
        for bad in ["", "00", "00-xyz", &good[1..], &good.to_uppercase(), &format!("{good}-more")] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
