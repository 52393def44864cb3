//! The recorded metrics and the log of failures: the same fields as those of the in-process executor.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_work::{Fault, Payload, Task, Work};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::conformance::test_store::{claim, policies, settings, submit};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// One step succeeds at the third attempt, one uses up its attempts, and one fails permanently.
async fn fail() {
    let work = Work::open_with("sqlite::memory:", policies(), settings()).await.unwrap();
    let claimer = work.claimer("tester", &["card"], &[]).await.unwrap();
    let busy = || Fault::transient("password=hunter2");
    let asked = Duration::from_millis(30);
    submit(&work, Task::new("card").trace(TRACE)).await;
    claimer.fail(&claim(&claimer).await, busy().retry_after(asked)).await.unwrap();
    claimer.fail(&claim(&claimer).await, busy()).await.unwrap();
    claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    submit(&work, Task::new("card")).await;
    for _ in 0..3 {
        claimer.fail(&claim(&claimer).await, busy()).await.unwrap();
    }
    submit(&work, Task::new("card").trace(TRACE)).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("password=hunter2")).await.unwrap();
}

#[test]
fn failures_are_counted_and_logged() {
    // With two subscribers, tracing caches no interest of a thread without one.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let (log, recorder) = (Log::default(), DebuggingRecorder::new());
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        metrics::with_local_recorder(&recorder, || runtime.block_on(fail()));
    });
    let mut lines = Vec::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        let labels: Vec<_> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Histogram(values) => format!("{values:?}"),
            DebugValue::Gauge(value) => value.to_string(),
        };
        lines.push(format!("{}{{{}}} {value}", key.key().name(), labels.join(",")));
    }
    for line in [
        "holdoff_work_retries_total{operation=card,attempt=1,class=transient} 2",
        "holdoff_work_retries_total{operation=card,attempt=2,class=transient} 2",
        "holdoff_work_success_total{operation=card,attempt=3} 1",
        "holdoff_work_stopped_total{operation=card,reason=exhausted} 1",
        "holdoff_work_stopped_total{operation=card,reason=permanent} 1",
        "holdoff_work_retry_after_honoured_total{operation=card} 1",
        "holdoff_work_retry_after_seconds{operation=card} [0.03]",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} is not among {lines:#?}");
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let failures: Vec<&str> = text.lines().filter(|line| line.contains(" attempt=")).collect();
    let found = |line: &&&str, parts: &[&str]| parts.iter().all(|part| line.contains(part));
    for (parts, count) in [
        (
            &["scheduled a retry", "attempt=1", "delay_ms=30 trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\""]
                [..],
            1,
        ),
        (&["scheduled a retry", "operation=\"card\"", "class=\"transient\"", "task=", "step=0"], 4),
        (&["WARN", "gave up", "attempt=3", "class=\"transient\" reason=\"exhausted\" trace_id=\"\""], 1),
        (&["WARN", "gave up", "attempt=1", "reason=\"permanent\" trace_id=\"4bf92f"], 1),
    ] {
        assert_eq!(
            failures.iter().filter(|line| found(line, parts)).count(),
            count,
            "{parts:?}: {failures:#?}"
        );
    }
    assert_eq!(failures.len(), 6, "one line for each failure: {failures:#?}");
    assert!(!text.contains("hunter2"));
}
