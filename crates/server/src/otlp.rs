//! Export of traces: OTLP over HTTP, as JSON, which every collector accepts.
//!
//! [`traces`] returns two halves. [`Traces`] is a `tracing` layer that collects the spans of this project. It never
//! blocks: if the buffer is full, it drops the span. [`Sending`] sends the spans in batches until it is told to stop.
//!
//! Deliberately absent: metrics, which Prometheus scrapes; logs; and protobuf, to avoid the dependencies.

mod layer;
mod send;
mod span;

pub use layer::Traces;
pub use send::Sending;

/// The standard OpenTelemetry variable for the collector's address.
pub const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The maximum number of spans in the buffer.
const MOST_WAITING: usize = 8192;

/// Creates the two halves for the collector at this address, such as `http://127.0.0.1:4318`.
pub fn traces(endpoint: &str) -> Result<(Traces, Sending), crate::Error> {
    let (sender, inbox) = tokio::sync::mpsc::channel(MOST_WAITING);
    Ok((Traces::new(sender), Sending::new(endpoint, inbox)?))
}
