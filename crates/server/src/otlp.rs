//! Traces for whoever collects them: OTLP over HTTP, as JSON, which every collector takes.
//!
//! [`traces`] makes two halves. [`Traces`] is a layer of `tracing` that remembers spans of ours; it never waits, and
//! what does not fit is dropped. [`Sending`] sends them on, in batches, until it is told to stop.
//!
//! Deliberately absent: metrics, which Prometheus has; logs; and protobuf, for the sake of the dependencies.

mod layer;
mod send;
mod span;

pub use layer::Traces;
pub use send::Sending;

/// Where traces are sent, in the variables that OpenTelemetry has agreed on.
pub const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The most spans that wait to be sent.
const MOST_WAITING: usize = 8192;

/// Traces for the collector at this address, such as `http://127.0.0.1:4318`.
pub fn traces(endpoint: &str) -> Result<(Traces, Sending), crate::Error> {
    let (sender, inbox) = tokio::sync::mpsc::channel(MOST_WAITING);
    Ok((Traces::new(sender), Sending::new(endpoint, inbox)?))
}
