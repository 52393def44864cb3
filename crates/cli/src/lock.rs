//! `holdoff lock …`

mod child;
mod era;
mod held;
mod keeper;
mod list;
mod release;
mod run;
mod show;
pub(crate) mod signals;

use std::process::ExitCode;

use holdoff_lock::{Locks, Settings};
use holdoff_server::{Error, Place};
use keeper::Keeper;

use crate::args::{Args, LockArgs, LockCommand};
use crate::failure::Failure;
use crate::{config, daemon, serve};

/// The backend of the locks, the namespace, the settings and the output format.
struct Desk {
    keeper: Keeper,
    namespace: String,
    settings: Settings,
    json: bool,
}

pub(crate) fn run(command: &LockArgs, args: &Args) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(answer(command, args)))
}

async fn answer(command: &LockArgs, args: &Args) -> Result<ExitCode, Failure> {
    if let LockCommand::Release { key, force: false } = &command.command {
        return Err(release::explain(key));
    }
    let settings = config::load_whole(args.config.as_deref())?.lock.with_namespace(&command.namespace);
    let keeper = if command.asks_daemon(&settings) {
        Keeper::Daemon(daemon::address(command.url.as_deref(), args.config.as_deref())?)
    } else {
        open(command, args, &settings).await?
    };
    let desk = Desk { keeper, namespace: command.namespace.clone(), settings, json: args.json };
    match &command.command {
        LockCommand::Run(run) => return run::run(&desk, run).await,
        LockCommand::List(list) => list::run(&desk, list).await?,
        LockCommand::Show { key } => show::run(&desk, key).await?,
        LockCommand::Release { key, .. } => release::run(&desk, key).await?,
        LockCommand::RaiseEra => era::run(&desk).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the named store, or the store of the work.
async fn open(command: &LockArgs, args: &Args, settings: &Settings) -> Result<Keeper, Failure> {
    let place = serve::place(&command.place(), args.config.as_deref())?;
    match &command.command {
        LockCommand::Run(_) => place.make().map_err(|error| Failure::Failed(error.to_string()))?,
        _ => refuse_missing(&place)?,
    }
    let refused = |source| Failure::Failed(Error::Locks { place: place.clone(), source }.to_string());
    let locks = match place.url() {
        "sqlite::memory:" => Locks::memory(),
        url => Locks::open(url).await.map_err(refused)?,
    };
    Ok(Keeper::Store { locks: locks.with_settings(settings.clone())?, place })
}

/// Fails if the store does not exist, so that a read-only command does not create an empty store.
fn refuse_missing(place: &Place) -> Result<(), Failure> {
    let Some(file) = place.missing_file() else { return Ok(()) };
    Err(Failure::Failed(format!(
        "no locks are kept in {} yet: `holdoff serve` and `holdoff lock run` make it; --data DIR and --store URL \
         name another place",
        file.display()
    )))
}

impl From<holdoff_lock::Error> for Failure {
    fn from(error: holdoff_lock::Error) -> Self {
        match error {
            holdoff_lock::Error::InvalidKey(_) | holdoff_lock::Error::Settings(_) => {
                Self::Usage(error.to_string())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}
