//! `holdoff audit …`

use clap::Subcommand;

use super::PlaceArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum AuditCommand {
    /// List what operators did, the newest first
    List {
        /// Only in this namespace
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,

        /// Only what is older than the entry with this number
        #[arg(long, value_name = "ID")]
        before: Option<i64>,

        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
}
