//! `holdoff serve`

use std::net::SocketAddr;

use holdoff_server::Options;

use super::PlaceArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen: a loopback address; port 0 means any that is free
    #[arg(long, value_name = "ADDR", default_value_t = Options::LISTEN)]
    pub(crate) listen: SocketAddr,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// How many HTTP steps run at once
    #[arg(long, value_name = "N", default_value_t = Options::CONCURRENCY as u32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) concurrency: u32,

    #[arg(
        long,
        value_name = "FILTER",
        help = "What is logged to stderr, such as debug or warn,holdoff_work=debug [default: $RUST_LOG, then info]"
    )]
    pub(crate) log: Option<String>,
}
