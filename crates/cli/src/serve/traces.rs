//! Exports traces, if this binary has the feature `otlp` and the environment names an endpoint.

#[cfg(feature = "otlp")]
mod sent {
    use std::sync::Mutex;
    use std::time::Duration;

    use holdoff_server::otlp::{self, Sending, Traces};
    use tokio::runtime::Runtime;
    use tokio_util::sync::CancellationToken;

    use crate::failure::Failure;

    /// The time that the last traces get at shutdown.
    const PATIENCE: Duration = Duration::from_secs(5);

    /// The exporter, stored here because logging starts before there is a runtime that could send.
    static WAITING: Mutex<Option<Sending>> = Mutex::new(None);

    pub(crate) fn layer() -> Result<Option<Traces>, Failure> {
        let Some(endpoint) = std::env::var(otlp::ENDPOINT).ok().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let made = otlp::traces(&endpoint).map_err(|error| Failure::Usage(error.to_string()));
        let (traces, sending) = made?;
        if let Ok(mut waiting) = WAITING.lock() {
            *waiting = Some(sending);
        }
        Ok(Some(traces))
    }

    /// Starts the export of traces. The returned future stops it and sends the remaining traces.
    pub(crate) fn send(runtime: &Runtime) -> impl Future<Output = ()> + use<> {
        let stopping = CancellationToken::new();
        let sending = WAITING.lock().ok().and_then(|mut waiting| waiting.take());
        let task = sending.map(|sending| runtime.spawn(sending.run(stopping.clone())));
        async move {
            stopping.cancel();
            if let Some(task) = task {
                // A collector that does not answer does not delay the exit beyond the timeout.
                let _ = tokio::time::timeout(PATIENCE, task).await;
            }
        }
    }
}

#[cfg(not(feature = "otlp"))]
mod sent {
    use tokio::runtime::Runtime;
    use tracing_subscriber::layer::Identity;

    use crate::failure::Failure;

    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    pub(crate) fn layer() -> Result<Option<Identity>, Failure> {
        Ok(None)
    }

    pub(crate) fn send(_: &Runtime) -> impl Future<Output = ()> + use<> {
        std::future::ready(())
    }
}

pub(super) use sent::{layer, send};
