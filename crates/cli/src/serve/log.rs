//! The log: by default human-readable on a terminal and JSON otherwise.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use holdoff_server::LogFormat;

use super::traces;
use crate::config::{Config, Origin};
use crate::failure::Failure;

/// Starts logging to stderr. Only terminals get colours.
pub(crate) fn start(config: &Config) -> Result<(), Failure> {
    let named = config.whole.server.running.log.as_deref();
    let is_from_file = matches!(config.origin("server.log"), Origin::File(_));
    let variable = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let wanted = match (named, variable.as_deref()) {
        (Some(_), Some(variable)) if is_from_file => variable,
        (Some(named), _) => named,
        (None, variable) => variable.unwrap_or("info"),
    };
    let filter = EnvFilter::try_new(wanted)
        .map_err(|error| Failure::Usage(format!("the log filter {wanted:?} is not understood: {error}")))?;
    let is_terminal = std::io::stderr().is_terminal();
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal && !is_plain);
    let is_for_people = match config.whole.server.running.log_format {
        LogFormat::Auto => is_terminal,
        LogFormat::Pretty => true,
        LogFormat::Json => false,
    };
    let traces = traces::layer()?;
    let started = if is_for_people {
        log.with_target(false).finish().with(traces).try_init()
    } else {
        log.json().finish().with(traces).try_init()
    };
    started.map_err(|error| Failure::Failed(format!("cannot log: {error}")))
}
