//! The `tracing` layer that collects spans.

use tokio::sync::mpsc::Sender;
use tracing::Subscriber;
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::span::Span;

/// A `tracing` layer that collects the spans of this project. Spans that the log's filter drops are not traced either.
#[derive(Clone, Debug)]
pub struct Traces {
    sender: Sender<Span>,
}

impl Traces {
    pub(super) const fn new(sender: Sender<Span>) -> Self {
        Self { sender }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Traces {
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
