//! `holdoff council …`. The device runs for as long as the command does.

mod acceptors;
mod change;
mod join;
mod members;
mod status;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_council::machine::Members;
use holdoff_council::runtime::{Council, Error, Settings};

use crate::args::{AcceptorsCommand, Args, CouncilArgs, CouncilCommand};
use crate::failure::Failure;
use crate::serve;

/// The time a majority of the acceptors gets to report the decided slots.
const LOOK: Duration = Duration::from_secs(10);

/// Exit code for an operation that was not committed and never will be.
pub(crate) const NOT_COMMITTED: u8 = 75;
/// Exit code for an expired deadline.
pub(crate) const TIME_WAS_UP: u8 = 124;

/// The device, the arguments and the output format.
struct Desk<'a> {
    council: Council<Members>,
    args: &'a CouncilArgs,
    json: bool,
}

pub(crate) fn run(command: &CouncilArgs, args: &Args) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answered = runtime.block_on(Box::pin(answer(command, args.json)));
    // The command does not wait for connections to acceptors that do not answer.
    runtime.shutdown_background();
    answered
}

async fn answer(args: &CouncilArgs, json: bool) -> Result<ExitCode, Failure> {
    let directory = directory(args)?;
    match &args.command {
        CouncilCommand::Init { name, acceptors } => {
            return join::found(&directory, name, acceptors, args.deadline, json).await;
        }
        CouncilCommand::Join { council, acceptors, by, wait } => {
            let wish = join::Wish { council: *council, acceptors, by: *by, wait: *wait };
            return join::join(&directory, &wish, json).await;
        }
        _ => {}
    }
    let council = Council::open(&directory, Settings::default())?;
    let desk = Desk { council, args, json };
    let code = match &args.command {
        CouncilCommand::Members => members::list(&desk).await,
        CouncilCommand::Add { key, name } => change::add(&desk, *key, name).await,
        CouncilCommand::Remove { member } => change::remove(&desk, member).await,
        CouncilCommand::Rotate => change::rotate(&desk).await,
        CouncilCommand::Acceptors(AcceptorsCommand::List) => acceptors::list(&desk).await,
        CouncilCommand::Acceptors(AcceptorsCommand::Add { acceptor }) => {
            acceptors::add(&desk, acceptor).await
        }
        CouncilCommand::Acceptors(AcceptorsCommand::Remove { acceptor }) => {
            acceptors::remove(&desk, acceptor).await
        }
        CouncilCommand::Compact => change::compact(&desk).await,
        CouncilCommand::Watch => watch::run(&desk).await,
        CouncilCommand::Status => status::run(&desk).await,
        CouncilCommand::Init { .. } | CouncilCommand::Join { .. } => Ok(ExitCode::SUCCESS),
    };
    desk.council.close().await;
    code
}

fn directory(args: &CouncilArgs) -> Result<PathBuf, Failure> {
    let home = || serve::data_directory().map(|data| data.join("council"));
    args.dir.clone().or_else(home).ok_or_else(|| {
        Failure::Usage("there is no home directory to keep the device in; name one by --dir DIR".to_owned())
    })
}

impl Desk<'_> {
    /// Brings the device up to date. Returns whether it is current.
    async fn catch_up(&self) -> Result<bool, Failure> {
        let is_current = self.council.catch_up(LOOK.min(self.args.deadline)).await?;
        if !is_current {
            let status = self.council.status().await?;
            anstream::eprintln!(
                "no majority of the acceptors has answered: this is how it was after slot {}; `holdoff council \
                 status` says how they are",
                status.applied
            );
        }
        Ok(is_current)
    }
}

/// Returns the exit code of a read. A device that could not catch up has shown outdated state, which exits with the
/// code for an expired deadline.
fn current(is_current: bool) -> ExitCode {
    if is_current { ExitCode::SUCCESS } else { ExitCode::from(TIME_WAS_UP) }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::NotInvited(_) | Error::Net(holdoff_net::Error::Deadline { .. }) => {
                Self::Coded(TIME_WAS_UP, error.to_string())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}
