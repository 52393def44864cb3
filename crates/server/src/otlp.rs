//! Export of traces: OTLP over HTTP, as JSON, which every collector accepts.
//!
//! [`new_pipeline`] returns two halves. [`TraceLayer`] is a `tracing` layer that collects the spans of this project. It never
//! blocks: if the buffer is full, it drops the span. [`SpanExporter`] sends the spans in batches until it is told to stop.
//!
//! Deliberately absent: metrics, which Prometheus scrapes; logs; and protobuf, to avoid the dependencies.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_util::sync::CancellationToken;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::Error;

/// The standard OpenTelemetry variable for the collector's address.
pub const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The maximum number of spans in the buffer.
const MAX_BUFFERED: usize = 8192;

/// Creates the two halves for the collector at this address, such as `http://127.0.0.1:4318`.
pub fn new_pipeline(endpoint: &str) -> Result<(TraceLayer, SpanExporter), crate::Error> {
    let (sender, inbox) = tokio::sync::mpsc::channel(MAX_BUFFERED);
    Ok((TraceLayer::new(sender), SpanExporter::new(endpoint, inbox)?))
}

/// The maximum number of fields of one span.
const MAX_FIELDS: usize = 32;
const MAX_VALUE_CHARS: usize = 256;

/// A span, from its start to its end.
#[derive(Clone, Debug)]
struct Span {
    trace: u128,
    id: u64,
    parent: u64,
    name: &'static str,
    start: Duration,
    end: Duration,
    fields: Vec<(&'static str, String)>,
}

impl Span {
    fn new(name: &'static str, parent: Option<(u128, u64)>) -> Self {
        let mut rng = fastrand::Rng::new();
        let (trace, parent) = parent.unwrap_or_else(|| (rng.u128(1..), 0));
        Self { trace, id: rng.u64(1..), parent, name, start: wall(), end: Duration::ZERO, fields: Vec::new() }
    }

    fn ended(mut self) -> Self {
        self.end = wall();
        self
    }

    /// Continues the trace of a caller: `00-TRACE-SPAN-FLAGS`.
    fn continue_trace(&mut self, traceparent: &str) {
        let mut parts = traceparent.split('-').skip(1);
        let trace = parts.next().and_then(|trace| u128::from_str_radix(trace, 16).ok());
        let parent = parts.next().and_then(|parent| u64::from_str_radix(parent, 16).ok());
        if let (Some(trace @ 1..), Some(parent @ 1..)) = (trace, parent) {
            (self.trace, self.parent) = (trace, parent);
        }
    }

    /// Returns the span in OTLP's JSON encoding.
    fn to_otlp(&self) -> Value {
        // A received request is a server span; all others are internal.
        let kind = if self.name == "request" { 2 } else { 1 };
        let attribute =
            |(name, value): &(&str, String)| json!({ "key": name, "value": { "stringValue": value } });
        let mut span = json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": format!("{:016x}", self.id),
            "name": self.name,
            "kind": kind,
            "startTimeUnixNano": self.start.as_nanos().to_string(),
            "endTimeUnixNano": self.end.as_nanos().to_string(),
            "attributes": self.fields.iter().map(attribute).collect::<Vec<_>>(),
        });
        if let (true, Some(members)) = (self.parent != 0, span.as_object_mut()) {
            members.insert("parentSpanId".to_owned(), format!("{:016x}", self.parent).into());
        }
        span
    }
}

impl Visit for Span {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "trace" {
            self.continue_trace(value);
        } else if self.fields.len() < MAX_FIELDS {
            self.fields.push((field.name(), value.chars().take(MAX_VALUE_CHARS).collect()));
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

/// A `tracing` layer that collects the spans of this project. Spans that the log's filter drops are not traced either.
#[derive(Clone, Debug)]
pub struct TraceLayer {
    sender: Sender<Span>,
}

impl TraceLayer {
    const fn new(sender: Sender<Span>) -> Self {
        Self { sender }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let Some(span) = cx.span(id) else { return };
        let metadata = attributes.metadata();
        if !metadata.target().starts_with("holdoff") {
            return;
        }
        let parent = span
            .parent()
            .and_then(|parent| parent.extensions().get::<Span>().map(|parent| (parent.trace, parent.id)));
        let mut new = Span::new(metadata.name(), parent);
        attributes.record(&mut new);
        span.extensions_mut().insert(new);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let Some(span) = cx.span(id) else { return };
        if let Some(known) = span.extensions_mut().get_mut::<Span>() {
            values.record(known);
        }
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        let Some(span) = cx.span(&id) else { return };
        let over = span.extensions_mut().remove::<Span>();
        if let Some(over) = over {
            // A full buffer drops the span: tracing never blocks.
            let _ = self.sender.try_send(over.ended());
        }
    }
}

/// The maximum number of spans in one request.
const BATCH: usize = 512;
/// How long spans are collected before they are sent.
const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends spans to the collector in batches.
#[derive(Debug)]
pub struct SpanExporter {
    http: reqwest::Client,
    url: String,
    inbox: Receiver<Span>,
    /// Whether the last batch failed, so that a failure is logged once and not every second.
    is_failing: bool,
}

impl SpanExporter {
    fn new(endpoint: &str, inbox: Receiver<Span>) -> Result<Self, Error> {
        let http = reqwest::Client::builder().timeout(TIMEOUT).build();
        let http = http.map_err(|error| Error::Traces(error.to_string()))?;
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        reqwest::Url::parse(&url).map_err(|error| Error::Traces(error.to_string()))?;
        Ok(Self { http, url, inbox, is_failing: false })
    }

    /// Sends spans until `stopping` is cancelled, then sends the rest.
    pub async fn run(mut self, stopping: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let is_last = stopping.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none();
            while let Ok(span) = self.inbox.try_recv() {
                batch.push(span);
                if batch.len() == BATCH {
                    self.send(&mut batch).await;
                }
            }
            self.send(&mut batch).await;
            if is_last {
                return;
            }
        }
    }

    async fn send(&mut self, batch: &mut Vec<Span>) {
        if batch.is_empty() {
            return;
        }
        let spans: Vec<Value> = batch.drain(..).map(|span| span.to_otlp()).collect();
        let body = envelope(&spans);
        let request =
            self.http.post(&self.url).header("content-type", "application/json").body(body.to_string());
        let response = request.send().await.and_then(reqwest::Response::error_for_status);
        if let (Err(error), false) = (&response, self.is_failing) {
            tracing::warn!(
                error = innermost_cause(error),
                "failed to export traces; spans are dropped until the collector accepts them"
            );
        }
        self.is_failing = response.is_err();
    }
}

/// Returns the innermost cause only: an outer error may contain the address with a password.
fn innermost_cause(error: &reqwest::Error) -> String {
    if let Some(status) = error.status() {
        return format!("the collector answered {status}");
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn envelope(spans: &[Value]) -> Value {
    let attribute = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [attribute("service.name", "holdoff"), attribute("service.version", version)] },
        "scopeSpans": [{ "scope": { "name": "holdoff", "version": version }, "spans": spans }],
    }] })
}
