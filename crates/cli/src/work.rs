//! `holdoff work …`

mod act;
mod list;
mod queues;
mod show;
mod submit;

use std::process::ExitCode;

use clap::Subcommand;
use holdoff_server::{Error, StoreUrl};
use holdoff_work::{Action, Settings, Work};

use crate::args::{GlobalArgs, StoreArgs};
use crate::config::{AllSettings, load_settings};
use crate::error::CommandError;
use crate::store;

/// The commands that create a store of tasks.
pub(crate) const CREATORS: &str = "`holdoff serve` or `holdoff work submit`";

#[derive(clap::Args, Debug)]
pub(crate) struct WorkArgs {
    #[command(flatten)]
    store: StoreArgs,

    #[command(subcommand)]
    command: WorkCommand,
}

#[derive(Subcommand, Debug)]
enum WorkCommand {
    /// Submit a task of one step and print its id when it is durable
    Submit(submit::SubmitArgs),

    /// List steps, the newest first
    List(list::ListArgs),

    /// Show a task, its steps and every attempt that did not succeed
    Show(show::ShowArgs),

    /// Retry failed and conflicted steps with all attempts of their policy
    Retry(act::ActArgs),

    /// Cancel tasks and all their unfinished steps
    Cancel(act::ActArgs),

    /// Discard failed and conflicted steps; the steps that depend on them stay blocked
    Discard(act::ActArgs),

    /// Resolve a conflicted step, optionally with a new payload, and run it again
    Resolve(act::ResolveArgs),

    /// Pause a queue or an operation: running steps continue, and no other step is dispatched
    Pause(queues::PauseArgs),

    /// Resume a paused queue or operation
    Resume(queues::PauseArgs),

    /// Count steps by state for each queue and operation
    Stats,
}

/// The store, the settings and the output format.
struct WorkContext {
    work: Work,
    store: StoreUrl,
    settings: Settings,
    json: bool,
}

pub(crate) fn run(args: &WorkArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(execute(args, global)))
}

async fn execute(args: &WorkArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let store = store::select(&args.store, global.config.as_deref())?;
    match &args.command {
        WorkCommand::Submit(_) => store.create()?,
        _ => store::require_existing(&store, CREATORS)?,
    }
    let AllSettings { policies, work: settings, .. } = load_settings(global.config.as_deref())?;
    let refused = |source| CommandError::failed(Error::Store { store: store.clone(), source });
    let work = Box::pin(Work::attach(store.as_str(), policies, settings.clone())).await.map_err(refused)?;
    let context = WorkContext { work, store, settings, json: global.json };
    match &args.command {
        WorkCommand::Submit(args) => submit::run(&context, args).await?,
        WorkCommand::List(args) => list::run(&context, args).await?,
        WorkCommand::Show(args) => show::run(&context, args).await?,
        WorkCommand::Retry(args) => act::run(&context, args, Action::Retry).await?,
        WorkCommand::Cancel(args) => act::run(&context, args, Action::Cancel).await?,
        WorkCommand::Discard(args) => act::run(&context, args, Action::Discard).await?,
        WorkCommand::Resolve(args) => act::resolve(&context, args).await?,
        WorkCommand::Pause(args) => queues::set_paused(&context, args, true).await?,
        WorkCommand::Resume(args) => queues::set_paused(&context, args, false).await?,
        WorkCommand::Stats => queues::stats(&context).await?,
    }
    Ok(ExitCode::SUCCESS)
}
