//! The content of the logs: the required fields, and no secrets.

use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};

use crate::support::{exhaust, succeed_at_the_third};

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
    assert!(text.contains("error_type=&str reason=exhausted"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
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
