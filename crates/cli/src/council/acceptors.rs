//! `holdoff council acceptors …`

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use holdoff_council::NodeId;
use holdoff_council::machine::{AcceptorInfo, CouncilChange, Machine};
use holdoff_council::runtime::{AcceptorHealth, AcceptorStatus};
use holdoff_net::PeerAddress;

use super::{CouncilContext, change, read_exit_code};
use crate::error::CommandError;
use crate::output::{self, Table};

#[derive(Subcommand, Debug)]
pub(super) enum AcceptorsCommand {
    /// List the acceptors
    List,

    /// Add an acceptor
    Add {
        /// Public key and address of the acceptor, as it prints them when it starts
        #[arg(value_name = "KEY@HOST:PORT")]
        acceptor: PeerAddress,
    },

    /// Remove an acceptor
    Remove {
        /// Public key of the acceptor, or the first digits of its id
        acceptor: String,
    },
}

pub(super) async fn run(
    context: &CouncilContext<'_>,
    command: &AcceptorsCommand,
) -> Result<ExitCode, CommandError> {
    match command {
        AcceptorsCommand::List => list(context).await,
        AcceptorsCommand::Add { acceptor } => add(context, acceptor).await,
        AcceptorsCommand::Remove { acceptor } => remove(context, acceptor).await,
    }
}

async fn list(context: &CouncilContext<'_>) -> Result<ExitCode, CommandError> {
    let is_current = context.catch_up().await?;
    let status = context.council.status().await?;
    let mut out = output::stdout();
    if context.json {
        let acceptors: Vec<_> = status.acceptors.iter().map(as_json).collect();
        writeln!(
            out,
            "{}",
            serde_json::json!({ "slot": status.applied.0, "is_current": is_current, "acceptors": acceptors })
        )?;
    } else {
        print(&status.acceptors, &mut out)?;
    }
    Ok(read_exit_code(is_current))
}

pub(super) fn print(acceptors: &[AcceptorStatus], out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new(["acceptor", "state", "address"]);
    for status in acceptors {
        let address = PeerAddress { key: status.acceptor.key, address: status.acceptor.address.clone() };
        table.row([status.id.to_string(), describe(&status.health), address.to_string()]);
    }
    table.print(out)
}

pub(super) fn as_json(status: &AcceptorStatus) -> serde_json::Value {
    let AcceptorStatus { id, acceptor, health } = status;
    let (word, reason) = match health {
        AcceptorHealth::Connected => ("connected", None),
        AcceptorHealth::Unreachable(why) => ("unreachable", Some(why.clone())),
        AcceptorHealth::Wiped { .. } => ("wiped", Some(describe(health))),
        AcceptorHealth::Refusing(why) => ("refusing", Some(why.to_string())),
        _ => ("connecting", None),
    };
    serde_json::json!({
        "id": format!("{:032x}", id.0), "key": acceptor.key, "address": acceptor.address, "health": word, "reason": reason,
    })
}

fn describe(health: &AcceptorHealth) -> String {
    match health {
        AcceptorHealth::Connected => "connected".to_owned(),
        AcceptorHealth::Unreachable(why) => format!("unreachable: {why}"),
        AcceptorHealth::Wiped { .. } => "its store was wiped: remove it and add it again".to_owned(),
        AcceptorHealth::Refusing(why) => format!("rejects requests: {why}"),
        _ => "connecting".to_owned(),
    }
}

async fn add(context: &CouncilContext<'_>, address: &PeerAddress) -> Result<ExitCode, CommandError> {
    let identified = context.council.introduce_to(address, context.args.deadline).await?;
    change::submit(context, CouncilChange::AddAcceptor(identified), None).await
}

async fn remove(context: &CouncilContext<'_>, named: &str) -> Result<ExitCode, CommandError> {
    context.catch_up().await?;
    let state = context.council.state().await?;
    let matches = |id: &NodeId, acceptor: &AcceptorInfo| {
        acceptor.key.to_string() == named
            || (named.len() >= 4 && format!("{:032x}", id.0).starts_with(named))
            || PeerAddress { key: acceptor.key, address: acceptor.address.clone() }.to_string() == named
    };
    let acceptors = state.machine().acceptors();
    let matching: Vec<_> = acceptors.iter().filter(|(id, acceptor)| matches(id, acceptor)).collect();
    match matching.as_slice() {
        [(id, _)] => change::submit(context, CouncilChange::RemoveAcceptor(**id), None).await,
        [] => Err(CommandError::Failed(format!(
            "{named} is not an acceptor of this council; `holdoff council acceptors list` lists them"
        ))),
        _ => {
            Err(CommandError::Usage(format!("{named} matches several acceptors: add more digits of the id")))
        }
    }
}
