//! The log, by default human-readable on a terminal and JSON otherwise, and the export of traces.

use std::io::IsTerminal;

use holdoff_server::LogFormat;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Config, Origin};
use crate::error::CommandError;

pub(super) use traces::send as send_traces;

/// Starts logging to stderr. Only terminals get colours.
pub(crate) fn start(config: &Config) -> Result<(), CommandError> {
    let named = config.settings.server.running.log.as_deref();
    let is_from_file = matches!(config.origin("server.log"), Origin::File(_));
    let variable = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let wanted = match (named, variable.as_deref()) {
        (Some(_), Some(variable)) if is_from_file => variable,
        (Some(named), _) => named,
        (None, variable) => variable.unwrap_or("info"),
    };
    let filter = EnvFilter::try_new(wanted)
        .map_err(|error| CommandError::Usage(format!("invalid log filter {wanted:?}: {error}")))?;
    let is_terminal = std::io::stderr().is_terminal();
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal && !is_plain);
    let is_pretty = match config.settings.server.running.log_format {
        LogFormat::Auto => is_terminal,
        LogFormat::Pretty => true,
        LogFormat::Json => false,
    };
    let traces = traces::layer()?;
    let started = if is_pretty {
        log.with_target(false).finish().with(traces).try_init()
    } else {
        log.json().finish().with(traces).try_init()
    };
    started.map_err(|error| CommandError::Failed(format!("cannot start logging: {error}")))
}

#[cfg(feature = "otlp")]
mod traces {
    use std::time::Duration;

    use holdoff_server::otlp::{self, SpanExporter, TraceLayer};
    use parking_lot::Mutex;
    use tokio::runtime::Runtime;
    use tokio_util::sync::CancellationToken;

    use crate::error::CommandError;

    /// The time that the last traces get at shutdown.
    const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

    /// The exporter, stored here because logging starts before there is a runtime that could send.
    static EXPORTER: Mutex<Option<SpanExporter>> = parking_lot::const_mutex(None);

    pub(crate) fn layer() -> Result<Option<TraceLayer>, CommandError> {
        let Some(endpoint) = std::env::var(otlp::ENDPOINT).ok().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let made = otlp::new_pipeline(&endpoint).map_err(|error| CommandError::Usage(error.to_string()));
        let (layer, exporting) = made?;
        *EXPORTER.lock() = Some(exporting);
        Ok(Some(layer))
    }

    /// Starts the export of traces. The returned future stops it and sends the remaining traces.
    pub(crate) fn send(runtime: &Runtime) -> impl Future<Output = ()> + use<> {
        let stopping = CancellationToken::new();
        let exporter = EXPORTER.lock().take();
        let task = exporter.map(|exporter| runtime.spawn(exporter.run(stopping.clone())));
        async move {
            stopping.cancel();
            if let Some(task) = task {
                // A collector that does not answer does not delay the exit beyond the timeout.
                let _ = tokio::time::timeout(FLUSH_TIMEOUT, task).await;
            }
        }
    }
}

#[cfg(not(feature = "otlp"))]
mod traces {
    use tokio::runtime::Runtime;
    use tracing_subscriber::layer::Identity;

    use crate::error::CommandError;

    #[expect(clippy::unnecessary_wraps, reason = "fails with the feature `otlp`")]
    pub(crate) fn layer() -> Result<Option<Identity>, CommandError> {
        Ok(None)
    }

    pub(crate) fn send(_: &Runtime) -> impl Future<Output = ()> + use<> {
        std::future::ready(())
    }
}
