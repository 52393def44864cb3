//! The recorded metrics, and the content of the logs: the required fields, and no secrets.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_policy::{BreakerOptions, Class, Failure, Growth, Jitter, Policy};
use holdoff_retry::{Retry, Retryable, SharedBreaker, blocking, metrics};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tracing::Instrument as _;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

#[test]
fn every_metric_is_recorded_under_its_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    ::metrics::with_local_recorder(&recorder, || {
        metrics::describe();
        succeed_at_the_third();
        exhaust();
        meet_an_open_breaker();
        refresh();
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
    has("holdoff_retry_retries_total{operation=card.refresh,attempt=1,class=unauthorized} 1");
    has("holdoff_retry_success_total{operation=card.charge,attempt=3} 1");
    has("holdoff_retry_stopped_total{operation=card.charge,reason=exhausted} 2");
    has("holdoff_retry_stopped_total{operation=card.charge,reason=breaker_open} 1");
    has("holdoff_retry_retry_after_honoured_total{operation=card.charge} 1");
    has("holdoff_retry_retry_after_seconds{operation=card.charge} [0.002]");
    has("holdoff_retry_delay_seconds{operation=card.charge} [0.001, 0.002, 0.001]");
}

#[test]
fn logs_carry_the_fields_and_never_the_error() {
    // With a single subscriber, tracing caches the interest of the thread that first reaches a log statement,
    // and another thread has no subscriber. With two subscribers it asks both.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        succeed_at_the_third();
        exhaust();
    });
    let text = lines.0.lock().unwrap().join("\n");
    let first = "operation=card.charge operation_id=id-7 attempt=1 class=rate-limited";
    assert!(text.contains(first), "{text}");
    assert!(text.contains("delay_ms=2"), "{text}");
    assert!(text.contains("error.type=&str reason=exhausted"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

/// A span with the field of OpenTelemetry learns the number of the repetition.
#[tokio::test(start_paused = true)]
async fn the_callers_span_has_the_resend_count() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(Records(lines.clone()));
    let _guard = tracing::subscriber::set_default(subscriber);
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let mut answers = [Err(SECRET), Err(SECRET), Ok(())].into_iter();
    let call = || std::future::ready(answers.next().unwrap());
    let span = tracing::info_span!("fetch", http.request.resend_count = tracing::field::Empty);
    call.retry(&quick(5)).when(|_| true).instrument(span).await.unwrap();
    assert_eq!(*lines.0.lock().unwrap(), ["http.request.resend_count=1 ", "http.request.resend_count=2 "]);
}

/// Collects the fields that spans record.
struct Records(Lines);

impl<S: tracing::Subscriber> Layer<S> for Records {
    fn on_record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>, _: Context<'_, S>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        self.0.0.lock().unwrap().push(line.0);
    }
}

/// Collects every event as one line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push_str(&[field.name(), "=", value, " "].concat());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

fn quick(attempts: u32) -> Policy {
    let growth = Growth::constant(Duration::from_millis(1));
    Policy::builder(growth).jitter(Jitter::None).attempts(attempts).build().unwrap()
}

const SECRET: &str = "password=hunter2";

/// Fails twice with a secret in the error, the second time with a `Retry-After`, then succeeds.
pub(crate) fn succeed_at_the_third() {
    let (policy, calls) = (quick(5), Cell::new(0));
    let classify = |error: &(u32, &str)| {
        let failure = Failure::new(Class::RateLimited);
        if error.0 == 2 { failure.with_retry_after(Duration::from_millis(2)) } else { failure }
    };
    let call = || {
        calls.set(calls.get() + 1);
        if calls.get() < 3 { Err((calls.get(), SECRET)) } else { Ok(()) }
    };
    let retry = Retry::new(&policy).operation("card.charge");
    blocking::retry(&retry, call).operation_id("id-7").classify(classify).call().unwrap();
}

pub(crate) fn exhaust() {
    let retry = Retry::new(quick(2)).operation("card.charge");
    blocking::retry(&retry, || Err::<(), _>(SECRET)).when(|_| true).call().unwrap_err();
}

/// Opens a breaker by one failure, then receives its refusal.
pub(crate) fn meet_an_open_breaker() {
    let breaker = SharedBreaker::new(BreakerOptions { min_calls: 1, ..BreakerOptions::default() });
    let retry = Retry::new(quick(1)).operation("card.charge").breaker(Arc::new(breaker));
    for _ in 0..2 {
        blocking::retry(&retry, || Err::<(), _>(SECRET)).when(|_| true).call().unwrap_err();
    }
}

/// Is refused once, refreshes the credential, and succeeds.
fn refresh() {
    let (refresher, calls) = (Arc::new(blocking::Refresher::new(|| Ok(()))), Cell::new(0));
    let retry = Retry::new(quick(2)).operation("card.refresh").refresh_blocking(refresher);
    let call = || if calls.replace(1) == 0 { Err(()) } else { Ok(()) };
    blocking::retry(&retry, call).classify(|(): &()| Failure::new(Class::Unauthorized)).call().unwrap();
}
