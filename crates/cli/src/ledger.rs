//! `holdoff ledger …`, on a directory or through a daemon.

mod get;
mod history;
mod init;
mod members;
mod recover;
mod status;
mod submit;
mod verify;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use holdoff_policy::PolicySet;
use serde_json::Value;

use crate::api_client::{self, ApiClient};
use crate::args::{GlobalArgs, heading};
use crate::error::CommandError;
use crate::output;

#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit codes: 0 on success; 1 if the command failed; 2 if its arguments are invalid; 75 if no leader \
                  accepted the request, which had no effect; 124 if the timeout expired and the transaction may still \
                  be committed: submit it again with the printed --tx-id and --birth.\n\n`init`, `join` and `recover` work on a directory, \
                  without a daemon. All other commands send a request to a daemon, with the API token in \
                  $HOLDOFF_API_TOKEN."
)]
pub(crate) struct LedgerArgs {
    /// Namespace, the name of the ledger
    #[arg(long, global = true, value_name = "NAME", default_value = PolicySet::DEFAULT_NAMESPACE)]
    namespace: String,

    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = heading::DAEMON,
        help = "Daemon to send the request to [default: $HOLDOFF_URL, then server.listen]"
    )]
    url: Option<String>,

    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Subcommand, Debug)]
enum LedgerCommand {
    /// Create a ledger with this node as its only member
    Init(init::DirectoryArgs),

    /// Prepare this node to join a ledger, and print the command that a member must run
    Join(init::JoinArgs),

    /// Make this node the only voter, after a majority of the voters is lost for good
    Recover(recover::RecoverArgs),

    /// Show the leader, the members and their progress
    Status {
        /// Print the status again whenever it changes, until the command is stopped
        #[arg(long)]
        watch: bool,
    },

    /// Submit a transaction and wait for its result
    Submit(submit::SubmitArgs),

    /// Read a value, or evaluate a goal without changing anything
    Get(get::GetArgs),

    /// List committed entries in the order of the log
    History(history::HistoryArgs),

    /// Verify the hashes and signatures of the history that the daemon keeps
    Verify,

    /// List, add and remove members
    Members {
        #[command(subcommand)]
        command: Option<members::MembersCommand>,
    },

    /// Transfer leadership to another member
    StepDown {
        /// Public key or name of the new leader [default: the member with the most recent log]
        #[arg(long, value_name = "MEMBER")]
        to: Option<String>,
    },

    /// Replace all entries on the daemon's disk by a snapshot
    Snapshot,
}

/// The daemon and the output format.
struct LedgerContext {
    daemon: ApiClient,
    json: bool,
}

pub(crate) fn run(args: &LedgerArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    match &args.command {
        LedgerCommand::Init(init) => return init::init(&args.namespace, init, global),
        LedgerCommand::Join(join) => return init::join(&args.namespace, join, global),
        LedgerCommand::Recover(recover) => return recover::run(&args.namespace, recover, global),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(execute(args, global)))
}

async fn execute(args: &LedgerArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let address = api_client::address(args.url.as_deref(), global.config.as_deref())?;
    let daemon = ApiClient::new(&address, "/v1/ledger", Some(&args.namespace))?;
    let context = LedgerContext { daemon, json: global.json };
    match &args.command {
        LedgerCommand::Status { watch } => status::run(&context, *watch).await,
        LedgerCommand::Submit(args) => submit::run(&context, args).await,
        LedgerCommand::Get(args) => get::run(&context, args).await,
        LedgerCommand::History(args) => history::run(&context, args).await,
        LedgerCommand::Verify => verify::verify(&context).await,
        LedgerCommand::Members { command } => members::run(&context, command.as_ref()).await,
        LedgerCommand::StepDown { to } => members::step_down(&context, to.as_deref()).await,
        LedgerCommand::Snapshot => verify::snapshot(&context).await,
        LedgerCommand::Init(_) | LedgerCommand::Join(_) | LedgerCommand::Recover(_) => Ok(ExitCode::SUCCESS),
    }
}

impl LedgerContext {
    /// Prints the response unchanged if the output format is JSON. Returns whether it did.
    fn print_json(&self, answer: &Value) -> Result<bool, CommandError> {
        if self.json {
            writeln!(output::stdout(), "{answer}")?;
        }
        Ok(self.json)
    }
}
