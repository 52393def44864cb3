//! `holdoff council …`. The device runs for as long as the command does.

mod acceptors;
mod change;
mod join;
mod recover;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Subcommand, ValueHint};
use holdoff_council::OperationId;
use holdoff_council::machine::Members;
use holdoff_council::runtime::{Council, Error, Settings};
use holdoff_policy::parse_duration;

use crate::args::GlobalArgs;
use crate::error::{CommandError, EXIT_TIMEOUT};
use crate::store;

/// The time a majority of the acceptors gets to report the decided slots.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit codes: 0 if the change is committed or already satisfied; 1 if it failed or is invalid; 75 if it \
                  was not committed and never will be; 124 if the deadline expired and it may still be committed. The \
                  next command on this device continues it."
)]
pub(crate) struct CouncilArgs {
    /// Directory of the device [default: holdoff/council in the user's data directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = DEVICE)]
    dir: Option<PathBuf>,

    /// Time after which the command gives up
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = parse_duration, help_heading = DEVICE)]
    deadline: Duration,

    /// Id of the operation, 32 hexadecimal digits; an operation with this id is executed at most once [default: a new
    /// id]
    #[arg(long, global = true, value_name = "ID", help_heading = DEVICE)]
    id: Option<OperationId>,

    #[command(subcommand)]
    command: CouncilCommand,
}

const DEVICE: &str = "Device options";

#[derive(Subcommand, Debug)]
enum CouncilCommand {
    /// Create a council with this device as its first member
    Init(join::InitArgs),

    /// Create a key, wait until a member adds it, and join the council
    Join(join::JoinArgs),

    /// List the members
    Members,

    /// Add a member and send it an invitation
    Add(change::AddArgs),

    /// Remove a member
    Remove {
        /// Public key of the member, or its name if the name is unique
        member: String,
    },

    /// Replace the key of this device by a new one
    Rotate,

    /// List, add and remove acceptors
    #[command(subcommand)]
    Acceptors(acceptors::AcceptorsCommand),

    /// Found a new council from what is left of this one, after a majority of its acceptors is lost for good
    Recover(recover::RecoverArgs),

    /// Replace all decided slots by a snapshot, so that the acceptors can delete them
    Compact,

    /// Print decided operations until the command is stopped
    Watch,

    /// Show the state of this device and of its acceptors
    Status,
}

/// The device, the arguments and the output format.
struct CouncilContext<'a> {
    council: Council<Members>,
    args: &'a CouncilArgs,
    json: bool,
}

pub(crate) fn run(args: &CouncilArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(Box::pin(execute(args, global.json)));
    // The command does not wait for connections to acceptors that do not answer.
    runtime.shutdown_background();
    result
}

async fn execute(args: &CouncilArgs, json: bool) -> Result<ExitCode, CommandError> {
    let directory = directory(args)?;
    match &args.command {
        CouncilCommand::Init(init) => return join::init(&directory, init, args.deadline, json).await,
        CouncilCommand::Join(join) => return join::join(&directory, join, json).await,
        CouncilCommand::Recover(recover) => {
            return recover::recover(&directory, recover, args.deadline, json).await;
        }
        _ => {}
    }
    let council = Council::open(&directory, Settings::default())?;
    let context = CouncilContext { council, args, json };
    let code = match &args.command {
        CouncilCommand::Members => show::members(&context).await,
        CouncilCommand::Add(add) => change::add(&context, add).await,
        CouncilCommand::Remove { member } => change::remove(&context, member).await,
        CouncilCommand::Rotate => change::rotate(&context).await,
        CouncilCommand::Acceptors(command) => acceptors::run(&context, command).await,
        CouncilCommand::Compact => change::compact(&context).await,
        CouncilCommand::Watch => show::watch(&context).await,
        CouncilCommand::Status => show::status(&context).await,
        CouncilCommand::Init(_) | CouncilCommand::Join(_) | CouncilCommand::Recover(_) => {
            Ok(ExitCode::SUCCESS)
        }
    };
    context.council.close().await;
    code
}

fn directory(args: &CouncilArgs) -> Result<PathBuf, CommandError> {
    let default = || store::data_directory().map(|data| data.join("council"));
    args.dir.clone().or_else(default).ok_or_else(|| {
        CommandError::Usage(
            "the device has no default directory, because $HOME is not set; set --dir DIR".to_owned(),
        )
    })
}

impl CouncilContext<'_> {
    /// Brings the device up to date. Returns whether it is current.
    async fn catch_up(&self) -> Result<bool, CommandError> {
        let is_current = self.council.catch_up(CATCH_UP_TIMEOUT.min(self.args.deadline)).await?;
        if !is_current {
            let status = self.council.status().await?;
            note!(
                "no majority of the acceptors answered: the output shows the state after slot {} and may be outdated; \
                 `holdoff council status` shows the state of the acceptors",
                status.applied
            );
        }
        Ok(is_current)
    }
}

/// Returns the exit code of a read. A device that could not catch up has shown outdated state, which exits with the
/// code for an expired deadline.
fn read_exit_code(is_current: bool) -> ExitCode {
    if is_current { ExitCode::SUCCESS } else { ExitCode::from(EXIT_TIMEOUT) }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotInvited(_) | Error::Net(holdoff_net::Error::Deadline { .. }) => {
                Self::Coded(EXIT_TIMEOUT, error.to_string())
            }
            _ => Self::failed(error),
        }
    }
}
