//! `holdoff acceptor`

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueHint;
use holdoff_council::NodeId;
use holdoff_council::acceptor::{AcceptorService, Settings};

use crate::args::{GlobalArgs, parse_listen_address, path_value, with_default};
use crate::config::{FlagValue, load_config};
use crate::error::CommandError;
use crate::output;
use crate::serve::start_log;
use crate::signals::StopSignals;

/// The time that requests in flight get to finish after a stop signal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The arguments of `holdoff acceptor`. Each flag overrides a key of the file's `[acceptor]`.
#[derive(clap::Args, Debug)]
pub(crate) struct AcceptorArgs {
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = parse_listen_address,
        help = with_default("Address to listen on; port 0 selects a free port", Settings::default().listen)
    )]
    listen: Option<SocketAddr>,

    /// Directory of the acceptor's key and store; it is created if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,

    /// Clients that may connect: a file with one public key per line, or `anyone` [default: anyone on a loopback
    /// address; required on any other address]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    allow: Option<PathBuf>,
}

impl AcceptorArgs {
    /// Returns the values set on the command line.
    fn flag_values(&self) -> Vec<FlagValue> {
        FlagValue::collect([
            ("acceptor.listen", "--listen", self.listen.map(|address| address.to_string().into())),
            ("acceptor.data", "--data", self.data.as_deref().map(path_value)),
            ("acceptor.allow", "--allow", self.allow.as_deref().map(path_value)),
        ])
    }
}

pub(crate) fn run(args: &AcceptorArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let config = load_config(global.config.as_deref(), args.flag_values())?;
    let settings = &config.settings.acceptor;
    let Some(directory) = &settings.data else {
        let message = "the acceptor needs a directory for its key and its store: set --data DIR";
        return Err(CommandError::Usage(message.to_owned()));
    };
    start_log(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let started = AcceptorService::start(directory, settings).await;
        let acceptor = started.map_err(CommandError::failed)?;
        let mut signals = StopSignals::new()?;
        // A closed stdout does not keep the acceptor from serving.
        let _ = print_greeting(&acceptor, global.json);
        tokio::select! {
            stopped = acceptor.failed() => Err(CommandError::failed(stopped)),
            _ = signals.next() => {
                tokio::select! {
                    _ = acceptor.stop(DRAIN_TIMEOUT) => {}
                    // A second signal stops the acceptor at once. Everything that it has answered is already on disk.
                    _ = signals.next() => {}
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

/// Prints the acceptor's identity. The first line is the `KEY@HOST:PORT` address to paste into other commands.
fn print_greeting(acceptor: &AcceptorService, json: bool) -> std::io::Result<()> {
    let mut out = output::stdout();
    let (key, incarnation, address) = (acceptor.key(), acceptor.incarnation(), acceptor.address());
    let node = format!("{:032x}", NodeId::derive(key.as_bytes(), incarnation).0);
    if json {
        let greeting = serde_json::json!({
            "acceptor": format!("{key}@{address}"),
            "key": key.to_string(),
            "incarnation": format!("{incarnation:016x}"),
            "node": node,
            "address": address,
        });
        return writeln!(out, "{greeting}");
    }
    writeln!(out, "{key}@{address}")?;
    writeln!(out, "node {node}, incarnation {incarnation:016x} of its store")
}
