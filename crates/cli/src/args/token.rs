//! `holdoff token …`

use std::time::Duration;

use clap::Subcommand;
use holdoff_policy::parse_duration;
use holdoff_server::Scope;

use super::PlaceArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it; it is never shown again
    Create(TokenCreateArgs),

    /// List tokens, the newest first
    List,

    /// Revoke a token: every daemon on the store refuses it within two seconds
    Revoke {
        /// Its id, as `token list` shows it
        id: String,
    },
}

#[derive(clap::Args, Debug)]
pub(crate) struct TokenCreateArgs {
    /// Whose it is; the audit log says so
    #[arg(long)]
    pub(crate) name: String,

    /// What it is good for: read, work (and read), or admin (everything)
    #[arg(long)]
    pub(crate) scope: Scope,

    /// The one namespace it is good in [default: all of them]
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// How long it is good, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) expires: Option<Duration>,
}
