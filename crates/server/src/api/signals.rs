//! `POST /v1/signals`: deduplicated alerts, and the fingerprints that identify them.

use axum::Json;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_work::{Fingerprint, Signalled, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use utoipa::ToSchema;

use super::input::{JsonBytes, check_text, parse_json, traceparent};
use super::tasks::TaskForm;
use crate::access::Caller;
use crate::app::App;
use crate::claims::RemoteDaemon;
use crate::gateway::Signal;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema;

/// The result of a signal.
#[derive(Serialize, ToSchema)]
#[schema(as = AcceptedSignal)]
struct AcceptedSignal {
    /// The task of the signal.
    #[schema(value_type = schema::TaskIdText)]
    task: TaskId,
    /// Whether this signal created the task.
    created: bool,
    /// The number of signals that the task stands for.
    occurrences: u64,
    /// The node key of the daemon that has the task, if it is another daemon.
    #[schema(pattern = "^[0-9a-f]{64}$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<String>,
}

/// Accepts a signal.
///
/// Signals with the same fingerprint create one task. While that task is live, further signals are counted.
#[utoipa::path(post, path = "/v1/signals", tag = "signals", security(("token" = ["work", "namespace"])),
    request_body = SignalForm,
    responses(
        (status = 201, description = "The signal created a task.", body = AcceptedSignal,
            headers(("location" = String, description = "The path of the task."))),
        (status = 200, description = "The signal was counted for a live task.", body = AcceptedSignal),
        (status = 422, description = "Too many queues and operations exist already.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 429, description = "Too many requests wait, or the queue is full; retry after `Retry-After`.",
            body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn signal(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let signal = read_signal(&body, traceparent(&headers), &caller)?;
    let (signalled, daemon) = app.gateway.accept(signal).await?;
    let created = matches!(signalled, Signalled::Created(_));
    let daemon = daemon.map(|RemoteDaemon(key)| key);
    let accepted =
        AcceptedSignal { task: signalled.task(), created, occurrences: signalled.occurrences(), daemon };
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(&accepted)).into_response();
    let location = HeaderValue::try_from(format!("/v1/tasks/{}", accepted.task)).ok();
    // The `Location` of a task on another daemon would not be found here.
    if let Some(location) = location.filter(|_| accepted.daemon.is_none()) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

const MAX_NAMESPACE_CHARS: usize = 200;
/// The maximum number of fields of a fingerprint.
const MAX_FIELDS: usize = 100;
/// 2^53: JSON implementations may not distinguish integers beyond this.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// A signal: its fingerprint, and the task to create for it.
#[derive(Deserialize, ToSchema)]
#[schema(as = Signal)]
#[serde(deny_unknown_fields)]
struct SignalForm {
    #[schema(min_length = 1, max_length = 200)]
    namespace: Option<String>,
    /// The fingerprint as text: equal for equal signals.
    #[schema(min_length = 1)]
    fingerprint: Option<String>,
    /// The alternative to `fingerprint`: the names of the fields of `data` that make up the fingerprint.
    #[schema(min_items = 1, max_items = 100)]
    fields: Option<Vec<String>>,
    #[schema(value_type = Option<Object>)]
    data: Option<Map<String, Value>>,
    task: TaskForm,
}

/// Reads a signal. The error names the invalid field.
fn read_signal(body: &[u8], trace: Option<&str>, caller: &Caller) -> Result<Signal, Problem> {
    let invalid = |why| Problem::new(Kind::InvalidSignal, why);
    let (named, fingerprint, mut task) = read_form(body).map_err(invalid)?;
    let namespace = caller.namespace(named)?;
    task.namespace = Some(namespace.clone());
    let task = task.task(trace).map_err(|why| invalid(format!("task: {why}")))?;
    Ok(Signal { namespace, fingerprint, task })
}

/// Returns the namespace if the body names one, the fingerprint, and the task.
fn read_form(body: &[u8]) -> Result<(Option<String>, Fingerprint, TaskForm), String> {
    let SignalForm { namespace, fingerprint, fields, data, mut task } = parse_json(body)?;
    let fingerprint = match (fingerprint, fields) {
        (Some(text), None) if text.is_empty() => return Err("`fingerprint` is empty".to_owned()),
        (Some(text), None) => Fingerprint::of(["text", &text]),
        (None, Some(fields)) => fingerprint_of_fields(fields, &data.unwrap_or_default())?,
        (Some(_), Some(_)) => {
            return Err("expected either `fingerprint` or `fields`, got both".to_owned());
        }
        (None, None) => {
            return Err(
                "expected `fingerprint` (a text) or `fields` (names of fields of `data` that make up the \
                        fingerprint)"
                    .to_owned(),
            );
        }
    };
    if task.dedup.is_some() {
        return Err("task.dedup: not allowed, because the fingerprint is the deduplication key".to_owned());
    }
    let namespace = match (namespace, task.namespace.take()) {
        (Some(one), Some(other)) if one != other => {
            return Err(format!("the signal has namespace {one:?}, but its task has {other:?}"));
        }
        (one, other) => one.or(other),
    };
    // The namespace is used in a lookup before the task is validated, so it is validated here.
    if let Some(namespace) = &namespace {
        check_text("namespace", namespace, MAX_NAMESPACE_CHARS)?;
    }
    Ok((namespace, fingerprint, task))
}

/// Returns the SHA-256 of the names and values of these fields. The order of the fields does not matter.
fn fingerprint_of_fields(mut fields: Vec<String>, data: &Map<String, Value>) -> Result<Fingerprint, String> {
    fields.sort_unstable();
    fields.dedup();
    if fields.is_empty() || fields.len() > MAX_FIELDS {
        return Err(format!("fields: expected 1 to {MAX_FIELDS} names"));
    }
    let missing: Vec<_> = fields.iter().filter(|name| !data.contains_key(*name)).collect();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|name| format!("`{name}`")).collect();
        return Err(format!("data has no {}, named in `fields`", names.join(", ")));
    }
    let mut parts = vec!["fields".to_owned()];
    for name in fields {
        let mut text = String::new();
        canonical(data.get(&name).unwrap_or(&Value::Null), &mut text)
            .map_err(|why| format!("data.{name}: {why}"))?;
        parts.extend([name, text]);
    }
    Ok(Fingerprint::of(parts))
}

/// Appends the canonical text of a value: sorted keys, no spaces, and `1` for `1.0`.
fn canonical(value: &Value, text: &mut String) -> Result<(), String> {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in entries {
                text.push_str(&Value::String(name.clone()).to_string());
                text.push(':');
                canonical(value, text)?;
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for value in values {
                canonical(value, text)?;
                text.push(',');
            }
            text.push(']');
        }
        Value::Number(number) => text.push_str(&canonical_number(number)?),
        Value::Null | Value::Bool(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
    Ok(())
}

fn canonical_number(number: &Number) -> Result<String, String> {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 => {
            if float.abs() >= MAX_EXACT_INTEGER {
                return Err(format!("{number} is too large to be exact; send it as a text"));
            }
            Ok(format!("{float:.0}").replace("-0", "0"))
        }
        _ => Ok(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(body: &str) -> Result<Fingerprint, String> {
        let body = format!(r#"{{{body}, "task": {{ "operation": "a" }}}}"#);
        read_form(body.as_bytes()).map(|(_, fingerprint, _)| fingerprint)
    }

    fn error_of(body: &str) -> String {
        fingerprint(body).expect_err("must be refused")
    }

    #[test]
    fn equal_values_have_equal_fingerprints() {
        let one = fingerprint(
            r#""fields": ["host", "what"], "data": {"host": {"b": [1, 2.5], "a": "ü"}, "what": 7, "at": 1}"#,
        );
        let same = [
            r#""fields": ["what", "host"], "data": {"at": 2, "what": 7.0, "host": {"a": "\u00fc", "b": [1.0, 2.5]}}"#,
            r#""fields": ["what", "host", "what"], "data": {"what": 7e0, "host": {"a":"ü","b":[1,25e-1]}}"#,
        ];
        for body in same {
            assert_eq!(fingerprint(body), one, "{body}");
        }
        let others = [
            r#""fields": ["host", "what"], "data": {"host": {"b": [2.5, 1], "a": "ü"}, "what": 7}"#,
            r#""fields": ["host", "what"], "data": {"host": {"b": [1, 2.5], "a": "ü"}, "what": "7"}"#,
            r#""fields": ["what"], "data": {"what": 7}"#,
        ];
        for body in others {
            assert_ne!(fingerprint(body), one, "{body}");
        }
        assert_eq!(
            fingerprint(r#""fields": ["a"], "data": {"a": -0.0}"#),
            fingerprint(r#""fields": ["a"], "data": {"a": 0}"#)
        );
    }

    #[test]
    fn an_invalid_signal_names_the_field() {
        assert!(error_of(r#""namespace": "a""#).contains("expected `fingerprint`"));
        assert!(error_of(r#""fingerprint": "a", "fields": ["b"]"#).contains("both"));
        assert!(error_of(r#""fingerprint": """#).contains("empty"));
        assert!(error_of(r#""fields": []"#).contains("1 to 100"));
        let missing = error_of(r#""fields": ["a", "b", "c"], "data": {"b": 1}"#);
        assert!(missing.contains("`a`, `c`"), "{missing}");
        let large = error_of(r#""fields": ["a"], "data": {"a": 1e300}"#);
        assert!(large.starts_with("data.a: ") && large.contains("as a text"), "{large}");
        let two = r#"{"fingerprint": "f", "namespace": "x", "task": {"operation": "a", "namespace": "y"}}"#;
        assert!(read_form(two.as_bytes()).is_err_and(|why| why.contains("namespace")));
        let odd = r#"{"fingerprint": "f", "namespace": "a\u0000", "task": {"operation": "a"}}"#;
        assert!(read_form(odd.as_bytes()).is_err_and(|why| why.starts_with("namespace: ")));
        let dedup = r#"{"fingerprint": "f", "task": {"operation": "a", "dedup": "y"}}"#;
        assert!(read_form(dedup.as_bytes()).is_err_and(|why| why.contains("task.dedup")));
        let task = r#"{"fingerprint": "f", "task": {"operation": "a", "delay": "soon"}}"#;
        assert!(read_form(task.as_bytes()).is_err_and(|why| why.starts_with("task.delay: ")));
    }
}
