//! Signals as they are written in JSON, and their fingerprints.

use holdoff_work::Fingerprint;
use serde::Deserialize;
use serde_json::{Map, Number, Value};
use utoipa::ToSchema;

use super::super::forms::{TaskForm, parse};
use super::super::input::check_text;
use crate::access::Access;
use crate::gateway::Signal;
use crate::problem::{Kind, Problem};

const LONGEST_NAMESPACE: usize = 200;
/// The maximum number of fields of a fingerprint.
const MOST_FIELDS: usize = 100;
/// 2^53: JSON implementations may not distinguish integers beyond this.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A signal: what makes it the same as others, and what is done about it.
#[derive(Deserialize, ToSchema)]
#[schema(as = Signal)]
#[serde(deny_unknown_fields)]
pub(super) struct SignalForm {
    #[schema(min_length = 1, max_length = 200)]
    namespace: Option<String>,
    /// A text that is the same for signals that are the same.
    #[schema(min_length = 1)]
    fingerprint: Option<String>,
    /// Or: which of the fields of `data` make signals the same.
    #[schema(min_items = 1, max_items = 100)]
    fields: Option<Vec<String>>,
    #[schema(value_type = Option<Object>)]
    data: Option<Map<String, Value>>,
    task: TaskForm,
}

/// Reads a signal. The error names the invalid field.
pub(super) fn read(body: &[u8], trace: Option<&str>, access: &Access) -> Result<Signal, Problem> {
    let invalid = |why| Problem::new(Kind::InvalidSignal, why);
    let (named, fingerprint, mut task) = read_form(body).map_err(invalid)?;
    let namespace = access.namespace(named)?;
    task.namespace = Some(namespace.clone());
    let task = task.task(trace).map_err(|why| invalid(format!("task: {why}")))?;
    Ok(Signal { namespace, fingerprint, task })
}

/// Returns the namespace if the body names one, the fingerprint, and the task.
fn read_form(body: &[u8]) -> Result<(Option<String>, Fingerprint, TaskForm), String> {
    let SignalForm { namespace, fingerprint, fields, data, mut task } = parse(body)?;
    let fingerprint = match (fingerprint, fields) {
        (Some(text), None) if text.is_empty() => return Err("`fingerprint` is empty".to_owned()),
        (Some(text), None) => Fingerprint::of(["text", &text]),
        (None, Some(fields)) => of_fields(fields, &data.unwrap_or_default())?,
        (Some(_), Some(_)) => {
            return Err("expected either `fingerprint` or `fields`, and there are both".to_owned());
        }
        (None, None) => {
            return Err(
                "expected `fingerprint`, a text, or `fields`, the names of those of `data` that make two \
                        signals the same"
                    .to_owned(),
            );
        }
    };
    if task.dedup.is_some() {
        return Err("task.dedup: a signal's fingerprint is its key".to_owned());
    }
    let namespace = match (namespace, task.namespace.take()) {
        (Some(one), Some(other)) if one != other => {
            return Err(format!("the signal's namespace is {one:?}, and its task's is {other:?}"));
        }
        (one, other) => one.or(other),
    };
    // The namespace is used in a lookup before the task is validated, so it is validated here.
    if let Some(namespace) = &namespace {
        check_text("namespace", namespace, LONGEST_NAMESPACE)?;
    }
    Ok((namespace, fingerprint, task))
}

/// Returns the SHA-256 of the names and values of these fields. The order of the fields does not matter.
fn of_fields(mut fields: Vec<String>, data: &Map<String, Value>) -> Result<Fingerprint, String> {
    fields.sort_unstable();
    fields.dedup();
    if fields.is_empty() || fields.len() > MOST_FIELDS {
        return Err(format!("fields: expected 1 to {MOST_FIELDS} names"));
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
        Value::Number(number) => text.push_str(&plain(number)?),
        Value::Null | Value::Bool(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
    Ok(())
}

fn plain(number: &Number) -> Result<String, String> {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 => {
            if float.abs() >= EXACT {
                return Err(format!("{number} is not told apart from its neighbours: write it as a text"));
            }
            Ok(format!("{float:.0}").replace("-0", "0"))
        }
        _ => Ok(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(body: &str) -> Result<Fingerprint, String> {
        let body = format!(r#"{{{body}, "task": {{ "operation": "a" }}}}"#);
        read_form(body.as_bytes()).map(|(_, fingerprint, _)| fingerprint)
    }

    fn refused(body: &str) -> String {
        print(body).expect_err("must be refused")
    }

    #[test]
    fn the_same_values_are_the_same_however_they_are_written() {
        let one = print(
            r#""fields": ["host", "what"], "data": {"host": {"b": [1, 2.5], "a": "ü"}, "what": 7, "at": 1}"#,
        );
        let same = [
            r#""fields": ["what", "host"], "data": {"at": 2, "what": 7.0, "host": {"a": "\u00fc", "b": [1.0, 2.5]}}"#,
            r#""fields": ["what", "host", "what"], "data": {"what": 7e0, "host": {"a":"ü","b":[1,25e-1]}}"#,
        ];
        for body in same {
            assert_eq!(print(body), one, "{body}");
        }
        let others = [
            r#""fields": ["host", "what"], "data": {"host": {"b": [2.5, 1], "a": "ü"}, "what": 7}"#,
            r#""fields": ["host", "what"], "data": {"host": {"b": [1, 2.5], "a": "ü"}, "what": "7"}"#,
            r#""fields": ["what"], "data": {"what": 7}"#,
        ];
        for body in others {
            assert_ne!(print(body), one, "{body}");
        }
        assert_eq!(
            print(r#""fields": ["a"], "data": {"a": -0.0}"#),
            print(r#""fields": ["a"], "data": {"a": 0}"#)
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(refused(r#""namespace": "a""#).contains("expected `fingerprint`"));
        assert!(refused(r#""fingerprint": "a", "fields": ["b"]"#).contains("both"));
        assert!(refused(r#""fingerprint": """#).contains("empty"));
        assert!(refused(r#""fields": []"#).contains("1 to 100"));
        let missing = refused(r#""fields": ["a", "b", "c"], "data": {"b": 1}"#);
        assert!(missing.contains("`a`, `c`"), "{missing}");
        let large = refused(r#""fields": ["a"], "data": {"a": 1e300}"#);
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
