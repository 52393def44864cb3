//! The recorder, and the metrics of this crate: every name, its help text, and the functions that record it.
//!
//! Labels are routes and statuses. The label of an unknown path is `none`.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

const REQUESTS: &str = "holdoff_server_requests_total";
const SIGNALS: &str = "holdoff_server_signals_total";
const UNAUTHENTICATED: &str = "holdoff_server_authentications_failed_total";
const CERTIFICATES: &str = "holdoff_server_certificates_read_total";
const REQUEST_SECONDS: &str = "holdoff_server_request_seconds";

/// From a lookup in memory to a request that waits for its server.
const BUCKETS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0];

/// The interval of the recorder's upkeep, which bounds its memory while no scraper asks for the metrics.
const UPKEEP: Duration = Duration::from_secs(5);

/// Installs the recorder, once in a process. Returns `None` if the program has a recorder of its own, which then
/// receives the metrics.
pub(crate) fn install() -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS).ok()?.build_recorder();
            let handle = recorder.handle();
            metrics::set_global_recorder(recorder).ok()?;
            describe();
            Some(handle)
        })
        .clone()
}

fn describe() {
    holdoff_retry::metrics::describe();
    holdoff_net::metrics::describe();
    holdoff_work::metrics::describe();
    holdoff_lock::metrics::describe();
    holdoff_council::metrics::describe();
    holdoff_ledger::metrics::describe();
    describe_counter!(REQUESTS, "responses, by route, method and status");
    describe_counter!(SIGNALS, "signals, by outcome");
    describe_counter!(UNAUTHENTICATED, "requests without a valid API token, by reason");
    describe_counter!(CERTIFICATES, "changed TLS certificates, by outcome");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "time from the request to the response");
}

/// Runs the recorder's upkeep until the daemon stops.
pub(crate) async fn run_upkeep(handle: PrometheusHandle, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(UPKEEP)).await.is_some() {
        handle.run_upkeep();
    }
}

/// Records a response.
pub(crate) fn record_response(route: &str, method: &str, status: u16, took: Duration) {
    counter!(REQUESTS, "route" => route.to_owned(), "method" => method.to_owned(), "status" => status.to_string())
        .increment(1);
    histogram!(REQUEST_SECONDS, "route" => route.to_owned()).record(took.as_secs_f64());
}

/// Records a request without a valid token.
pub(crate) fn record_unauthenticated(reason: &'static str) {
    counter!(UNAUTHENTICATED, "reason" => reason).increment(1);
}

/// Records an attempt to read a changed certificate.
pub(crate) fn record_certificate(outcome: &'static str) {
    counter!(CERTIFICATES, "outcome" => outcome).increment(1);
}

/// Records a signal that was accepted or refused.
pub(crate) fn record_signal(outcome: &'static str) {
    counter!(SIGNALS, "outcome" => outcome).increment(1);
}
