//! The recorder, and the metrics of this crate: every name, its help, and where it is recorded.
//!
//! Labels are routes and statuses; a path somebody made up is `none`.

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

/// From a lookup in memory to a step that waits for its server.
const BUCKETS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0];

/// How often what was recorded is put together, so that it does not pile up when nobody asks for it.
const UPKEEP: Duration = Duration::from_secs(5);

/// Installs the recorder, once in a process. None if the program has one of its own: then its metrics are shown
/// there.
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
    describe_counter!(REQUESTS, "requests answered, by route and status");
    describe_counter!(SIGNALS, "signals taken in, by what became of them");
    describe_counter!(UNAUTHENTICATED, "requests that came without a valid token, by reason");
    describe_counter!(CERTIFICATES, "certificates that have changed, by what became of them");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "how long an answer took");
}

/// Puts together what was recorded, until the daemon stops.
pub(crate) async fn keep_small(handle: PrometheusHandle, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(UPKEEP)).await.is_some() {
        handle.run_upkeep();
    }
}

/// A request was answered.
pub(crate) fn answered(route: &str, method: &str, status: u16, took: Duration) {
    counter!(REQUESTS, "route" => route.to_owned(), "method" => method.to_owned(), "status" => status.to_string())
        .increment(1);
    histogram!(REQUEST_SECONDS, "route" => route.to_owned()).record(took.as_secs_f64());
}

/// Somebody came without a valid token.
pub(crate) fn unauthenticated(reason: &'static str) {
    counter!(UNAUTHENTICATED, "reason" => reason).increment(1);
}

/// A certificate has changed.
pub(crate) fn certificate_read(outcome: &'static str) {
    counter!(CERTIFICATES, "outcome" => outcome).increment(1);
}

/// A signal was taken in, or turned away.
pub(crate) fn signalled(outcome: &'static str) {
    counter!(SIGNALS, "outcome" => outcome).increment(1);
}
