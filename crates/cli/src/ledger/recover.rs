//! `holdoff ledger recover`, on a directory and without a daemon.

use std::io::Write;
use std::process::ExitCode;

use holdoff_ledger::Slot;
use holdoff_ledger::runtime::{self, LogPosition, Recovery};
use holdoff_net::PublicKey;
use serde_json::json;

use super::init::{DirectoryArgs, ledger_directory};
use crate::args::GlobalArgs;
use crate::error::CommandError;
use crate::output;

#[derive(clap::Args, Debug)]
pub(super) struct RecoverArgs {
    /// Public key or name of a voter that is lost for good; repeatable. Without this option the command shows the end of
    /// this node's log and the voters, and changes nothing
    #[arg(long, value_name = "MEMBER", requires_all = ["through", "comment"])]
    lost: Vec<String>,

    /// Last index of this node's log, as the command shows it: confirms that transactions after it may be lost
    #[arg(long, value_name = "INDEX", requires = "lost")]
    through: Option<u64>,

    /// Reason, which becomes part of the history
    #[arg(long, value_name = "TEXT", requires = "lost")]
    comment: Option<String>,

    #[command(flatten)]
    directory: DirectoryArgs,
}

pub(super) fn run(
    namespace: &str,
    args: &RecoverArgs,
    global: &GlobalArgs,
) -> Result<ExitCode, CommandError> {
    let directory = ledger_directory(&args.directory.load_config(global)?)?;
    let position = runtime::log_position(&directory, namespace)?;
    let (Some(through), Some(comment)) = (args.through, args.comment.clone()) else {
        return show(&position, global);
    };
    let lost = args.lost.iter().map(|named| voter(&position, named)).collect::<Result<_, _>>()?;
    let index = runtime::recover(&directory, namespace, Recovery { lost, through: Slot(through), comment })?;
    let mut out = output::stdout();
    if global.json {
        writeln!(
            out,
            "{}",
            json!({ "namespace": namespace, "key": position.key, "index": index.0, "through": through })
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{index}")?;
    note!(
        "This is the index of the entry that records the recovery. This node is the only voter now.\n\
         Next: start `{}`. Then, on every other node that is left or returns: stop it, move its file of the ledger away, and \
         run `holdoff ledger join`. A lost voter must not be started with its old file.",
        args.directory.serve_command()
    );
    Ok(ExitCode::SUCCESS)
}

fn voter(position: &LogPosition, named: &str) -> Result<PublicKey, CommandError> {
    let is_it = |key: &PublicKey, name: &str| name == named || key.to_string() == named;
    let mut found = position.voters.iter().filter_map(|(_, key, name)| key.filter(|key| is_it(key, name)));
    match (found.next(), found.next()) {
        (Some(key), None) => Ok(key),
        _ => Err(CommandError::Usage(format!(
            "{named:?} is not the key or the unique name of a voter: run `holdoff ledger recover` to list the voters"
        ))),
    }
}

fn show(position: &LogPosition, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let LogPosition { key, accepted: (start, attempt, tie_breaker), last, voters } = position;
    let mut out = output::stdout();
    if global.json {
        let voters = voters
            .iter()
            .map(|(node, key, name)| json!({ "node": node.to_string(), "key": key, "name": name }));
        let accepted = json!({ "start": start.0, "attempt": attempt, "tie_breaker": tie_breaker });
        let answer = json!({
            "key": key, "accepted": accepted, "last": last.0, "voters": voters.collect::<Vec<_>>(),
        });
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "node      {key}")?;
    writeln!(out, "accepted  {start}.{attempt}.{tie_breaker}")?;
    writeln!(out, "last      {last}")?;
    for (node, key, name) in voters {
        writeln!(out, "voter     {} {name}", key.map_or_else(|| node.to_string(), |key| key.to_string()))?;
    }
    note!(
        "If a majority of these voters is lost for good, compare this on all nodes that are left, and choose the node with the \
         highest `accepted`, then with the highest `last`. Transactions after its last index may be lost, although they were \
         acknowledged. To found a new configuration from its log, run there\n\n    holdoff ledger recover --lost MEMBER... \
         --through {last} --comment TEXT"
    );
    Ok(ExitCode::SUCCESS)
}
