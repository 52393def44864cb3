//! What is logged, and how: for people on a terminal, for programs otherwise.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::traces;
use crate::failure::Failure;

/// Logs to stderr from now on.
pub(super) fn start(named: Option<&str>) -> Result<(), Failure> {
    let variable = std::env::var("RUST_LOG").ok();
    let wanted = named.or(variable.as_deref()).filter(|text| !text.is_empty()).unwrap_or("info");
    let filter = EnvFilter::try_new(wanted)
        .map_err(|error| Failure::Usage(format!("the log filter {wanted:?} is not understood: {error}")))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let is_terminal = std::io::stderr().is_terminal();
    let traces = traces::layer()?;
    let started = if is_terminal {
        log.with_target(false).finish().with(traces).try_init()
    } else {
        log.json().finish().with(traces).try_init()
    };
    started.map_err(|error| Failure::Failed(format!("cannot log: {error}")))
}
