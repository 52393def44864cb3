//! Sends spans to the collector.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use super::span::Span;
use crate::Error;

/// The maximum number of spans in one request.
const BATCH: usize = 512;
/// How long spans are collected before they are sent.
const PAUSE: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends spans to the collector in batches.
#[derive(Debug)]
pub struct Sending {
    http: reqwest::Client,
    url: String,
    inbox: Receiver<Span>,
    /// Whether the last batch failed, so that a failure is logged once and not every second.
    is_failing: bool,
}

impl Sending {
    pub(super) fn new(endpoint: &str, inbox: Receiver<Span>) -> Result<Self, Error> {
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
            let is_over = stopping.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none();
            while let Ok(span) = self.inbox.try_recv() {
                batch.push(span);
                if batch.len() == BATCH {
                    self.send(&mut batch).await;
                }
            }
            self.send(&mut batch).await;
            if is_over {
                return;
            }
        }
    }

    async fn send(&mut self, batch: &mut Vec<Span>) {
        if batch.is_empty() {
            return;
        }
        let spans: Vec<Value> = batch.drain(..).map(|span| span.shown()).collect();
        let body = envelope(&spans);
        let request =
            self.http.post(&self.url).header("content-type", "application/json").body(body.to_string());
        let taken = request.send().await.and_then(reqwest::Response::error_for_status);
        if let (Err(error), false) = (&taken, self.is_failing) {
            tracing::warn!(error = why(error), "traces are not taken; they are dropped until they are");
        }
        self.is_failing = taken.is_err();
    }
}

/// Returns the innermost cause only: an outer error may contain the address with a password.
fn why(error: &reqwest::Error) -> String {
    if let Some(status) = error.status() {
        return format!("the answer is {status}");
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
