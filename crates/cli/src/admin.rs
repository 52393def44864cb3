//! `holdoff admin …`

mod backup;
mod postgres;
mod restore;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueHint};

use crate::args::{GlobalArgs, StoreArgs};
use crate::error::CommandError;
use crate::store;

#[derive(clap::Args, Debug)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    store: StoreArgs,

    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand, Debug)]
enum AdminCommand {
    /// Copy a store into a file; daemons may keep writing
    Backup {
        /// File to create; an existing file is not overwritten
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },

    /// Restore a store from a backup; new fencing tokens of locks exceed all earlier ones
    Restore(restore::RestoreArgs),
}

pub(crate) fn run(args: &AdminArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let store = store::select(&args.store, global.config.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(async {
        match &args.command {
            AdminCommand::Backup { file } => backup::run(&store, file, global.json).await,
            AdminCommand::Restore(args) => restore::run(&store, args, global).await,
        }
    }))?;
    Ok(ExitCode::SUCCESS)
}
