//! A span, from its start to its end.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tracing::field::{Field, Visit};

/// The maximum number of fields of one span.
const MOST_FIELDS: usize = 32;
const LONGEST_VALUE: usize = 256;

/// A span, from its start to its end.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) trace: u128,
    pub(super) id: u64,
    pub(super) parent: u64,
    name: &'static str,
    start: Duration,
    pub(super) end: Duration,
    fields: Vec<(&'static str, String)>,
}

impl Span {
    pub(super) fn new(name: &'static str, parent: Option<(u128, u64)>) -> Self {
        let mut chance = fastrand::Rng::new();
        let (trace, parent) = parent.unwrap_or_else(|| (chance.u128(1..), 0));
        Self {
            trace,
            id: chance.u64(1..),
            parent,
            name,
            start: wall(),
            end: Duration::ZERO,
            fields: Vec::new(),
        }
    }

    pub(super) fn ended(mut self) -> Self {
        self.end = wall();
        self
    }

    /// Continues the trace of a caller: `00-TRACE-SPAN-FLAGS`.
    fn go_on(&mut self, traceparent: &str) {
        let mut parts = traceparent.split('-').skip(1);
        let trace = parts.next().and_then(|trace| u128::from_str_radix(trace, 16).ok());
        let parent = parts.next().and_then(|parent| u64::from_str_radix(parent, 16).ok());
        if let (Some(trace @ 1..), Some(parent @ 1..)) = (trace, parent) {
            (self.trace, self.parent) = (trace, parent);
        }
    }

    /// Returns the span in OTLP's JSON encoding.
    pub(super) fn shown(&self) -> Value {
        // A received request is a server span; all others are internal.
        let kind = if self.name == "request" { 2 } else { 1 };
        let attribute =
            |(name, value): &(&str, String)| json!({ "key": name, "value": { "stringValue": value } });
        let mut shown = json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": format!("{:016x}", self.id),
            "name": self.name,
            "kind": kind,
            "startTimeUnixNano": self.start.as_nanos().to_string(),
            "endTimeUnixNano": self.end.as_nanos().to_string(),
            "attributes": self.fields.iter().map(attribute).collect::<Vec<_>>(),
        });
        if let (true, Some(shown)) = (self.parent != 0, shown.as_object_mut()) {
            shown.insert("parentSpanId".to_owned(), format!("{:016x}", self.parent).into());
        }
        shown
    }
}

impl Visit for Span {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "trace" {
            self.go_on(value);
        } else if self.fields.len() < MOST_FIELDS {
            self.fields.push((field.name(), value.chars().take(LONGEST_VALUE).collect()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[expect(clippy::disallowed_methods, reason = "collectors want the wall clock")]
fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
