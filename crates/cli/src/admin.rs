//! `holdoff admin …`

mod backup;
mod postgres;
mod restore;

use std::process::ExitCode;

use crate::args::{AdminArgs, AdminCommand, Args};
use crate::failure::Failure;
use crate::{config, serve};

pub(crate) fn run(command: &AdminArgs, args: &Args) -> Result<ExitCode, Failure> {
    let place = serve::place(&command.place, args.config.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(async {
        match &command.command {
            AdminCommand::Backup { file } => backup::run(&place, file, args.json).await,
            AdminCommand::Restore { file, force, era } => {
                restore::run(&place, file, *force, *era, args.json).await?;
                // The restored store does not contain the locks of a ledger, which the daemon grants.
                if let Some(ledger) = config::load_whole(args.config.as_deref())?.lock.ledger() {
                    anstream::eprintln!(
                        "the daemon's locks are in its ledger {ledger}, which is as it was; if that was restored from \
                         copies, too, say `holdoff lock raise-era` when a majority of its daemons runs"
                    );
                }
                Ok(())
            }
        }
    }))?;
    Ok(ExitCode::SUCCESS)
}

impl From<holdoff_sql::BackupError> for Failure {
    fn from(error: holdoff_sql::BackupError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<holdoff_sql::Error> for Failure {
    fn from(error: holdoff_sql::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
