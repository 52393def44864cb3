//! The recorded metrics.

use holdoff_retry::metrics;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::support::{exhaust, meet_an_open_breaker, succeed_at_the_third};

#[test]
fn every_metric_is_recorded_under_its_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    ::metrics::with_local_recorder(&recorder, || {
        metrics::describe();
        succeed_at_the_third();
        exhaust();
        meet_an_open_breaker();
    });
    let lines: Vec<String> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels: Vec<_> =
                key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let value = match value {
                DebugValue::Counter(count) => count.to_string(),
                DebugValue::Histogram(values) => format!("{values:?}"),
                DebugValue::Gauge(value) => value.to_string(),
            };
            format!("{}{{{}}} {value}", key.key().name(), labels.join(","))
        })
        .collect();
    let has = |line: &str| assert!(lines.iter().any(|found| found == line), "{line} is not among {lines:#?}");
    has("holdoff_retry_retries_total{operation=card.charge,attempt=1,class=rate-limited} 1");
    has("holdoff_retry_retries_total{operation=card.charge,attempt=2,class=rate-limited} 1");
    has("holdoff_retry_retries_total{operation=card.charge,attempt=1,class=transient} 1");
    has("holdoff_retry_success_total{operation=card.charge,attempt=3} 1");
    has("holdoff_retry_stopped_total{operation=card.charge,reason=exhausted} 2");
    has("holdoff_retry_stopped_total{operation=card.charge,reason=breaker_open} 1");
    has("holdoff_retry_retry_after_honoured_total{operation=card.charge} 1");
    has("holdoff_retry_retry_after_seconds{operation=card.charge} [0.002]");
    has("holdoff_retry_delay_seconds{operation=card.charge} [0.001, 0.002, 0.001]");
}
