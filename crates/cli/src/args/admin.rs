//! `holdoff admin …` and `holdoff policy apply`

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

use super::PlaceArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum AdminCommand {
    /// Copy a store into a file, while daemons write it
    Backup {
        /// The file to make; one that is there is never written over
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },

    /// Bring a store back from a file that `backup` has made; tokens of locks go on above all that were given out
    Restore {
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,

        /// Also if the store is not empty: what is there is put aside
        #[arg(long)]
        force: bool,

        /// At least this era of locks begins: for when others have begun since the backup was taken
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u64).range(..4_000_000))]
        era: u64,
    },
}

#[derive(clap::Args, Debug)]
pub(crate) struct ApplyArgs {
    /// The file [default: the one that would be used]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// Only show what would change
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}
