//! `holdoff work …`

mod act;
mod filter;
mod list;
mod pause;
mod show;
mod stats;
mod submit;
pub(crate) mod text;

use std::process::ExitCode;

use holdoff_server::{Error, Place};
use holdoff_work::{Action, Settings, Work};

use crate::args::{Args, WorkArgs, WorkCommand};
use crate::failure::Failure;
use crate::{config, serve};

/// The store, the settings and the output format.
struct Desk {
    work: Work,
    place: Place,
    settings: Settings,
    json: bool,
}

pub(crate) fn run(command: &WorkArgs, args: &Args) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(answer(command, args)))
}

async fn answer(command: &WorkArgs, args: &Args) -> Result<ExitCode, Failure> {
    let place = serve::place(&command.place, args.config.as_deref())?;
    match &command.command {
        WorkCommand::Submit(_) => place.make().map_err(|error| Failure::Failed(error.to_string()))?,
        _ => refuse_missing(&place)?,
    }
    let config::Whole { policies, work: settings, .. } = config::load_whole(args.config.as_deref())?;
    let refused = |source| Failure::Failed(Error::Store { place: place.clone(), source }.to_string());
    let work = Box::pin(Work::attach(place.url(), policies, settings.clone())).await.map_err(refused)?;
    let desk = Desk { work, place, settings, json: args.json };
    match &command.command {
        WorkCommand::Submit(submit) => {
            // A submitted task uses the store's active policies, as every other task does.
            desk.work.look_at_policies().await?;
            submit::run(&desk, submit).await?;
        }
        WorkCommand::List(list) => list::run(&desk, list).await?,
        WorkCommand::Show { task, payloads } => show::run(&desk, *task, *payloads).await?,
        WorkCommand::Retry(act) => act::run(&desk, act, Action::Retry).await?,
        WorkCommand::Cancel(act) => act::run(&desk, act, Action::Cancel).await?,
        WorkCommand::Discard(act) => act::run(&desk, act, Action::Discard).await?,
        WorkCommand::Resolve(resolve) => act::resolve(&desk, resolve).await?,
        WorkCommand::Pause(pause) => pause::run(&desk, pause, true).await?,
        WorkCommand::Resume(pause) => pause::run(&desk, pause, false).await?,
        WorkCommand::Stats => stats::run(&desk).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if the store does not exist, so that a read-only command does not create an empty store.
pub(crate) fn refuse_missing(place: &Place) -> Result<(), Failure> {
    let Some(file) = place.missing_file() else { return Ok(()) };
    Err(Failure::Failed(format!(
        "no work is kept in {} yet: `holdoff serve` and `holdoff work submit` make it; --data DIR and --store URL \
         name another place",
        file.display()
    )))
}

impl From<holdoff_work::Error> for Failure {
    fn from(error: holdoff_work::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
