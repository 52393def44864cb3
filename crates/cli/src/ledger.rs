//! `holdoff ledger …`, on a directory or through a daemon.

mod found;
mod get;
mod history;
mod lead;
mod members;
mod seen;
mod status;
mod submit;
mod verify;

use std::io::Write;
use std::process::ExitCode;

use serde_json::Value;

use crate::args::{Args, LedgerArgs, LedgerCommand};
use crate::daemon::{self, Daemon};
use crate::failure::Failure;

/// The daemon and the output format.
struct Desk {
    daemon: Daemon,
    json: bool,
}

pub(crate) fn run(command: &LedgerArgs, args: &Args) -> Result<ExitCode, Failure> {
    match &command.command {
        LedgerCommand::Init { place } => return found::init(command, place, args),
        LedgerCommand::Join { place, members, address } => {
            return found::join(command, place, members, address.as_deref(), args);
        }
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(answer(command, args)))
}

async fn answer(command: &LedgerArgs, args: &Args) -> Result<ExitCode, Failure> {
    let address = daemon::address(command.url.as_deref(), args.config.as_deref())?;
    let daemon = Daemon::at(&address, "/v1/ledger", Some(&command.namespace))?;
    let desk = Desk { daemon, json: args.json };
    match &command.command {
        LedgerCommand::Status { watch } => status::run(&desk, *watch).await,
        LedgerCommand::Submit(submit) => submit::run(&desk, submit).await,
        LedgerCommand::Get { key: Some(key), how, timeout, .. } => {
            get::value(&desk, key, *how, *timeout).await
        }
        LedgerCommand::Get { goal, how, timeout, .. } => {
            get::goal(&desk, goal.as_deref().unwrap_or_default(), *how, *timeout).await
        }
        LedgerCommand::History { after, follow: true, .. } => history::follow(&desk, *after).await,
        LedgerCommand::History { after, limit, .. } => history::list(&desk, *after, *limit).await,
        LedgerCommand::Verify => verify::run(&desk).await,
        LedgerCommand::Members { command } => members::run(&desk, command.as_ref()).await,
        LedgerCommand::StepDown { to } => lead::step_down(&desk, to.as_deref()).await,
        LedgerCommand::Snapshot => verify::snapshot(&desk).await,
        LedgerCommand::Init { .. } | LedgerCommand::Join { .. } => Ok(ExitCode::SUCCESS),
    }
}

impl Desk {
    /// Prints the response unchanged if the output format is JSON. Returns whether it did.
    fn said_as_json(&self, answer: &Value) -> Result<bool, Failure> {
        if self.json {
            writeln!(anstream::stdout(), "{answer}")?;
        }
        Ok(self.json)
    }
}
