//! `holdoff serve`

use std::net::SocketAddr;
use std::path::PathBuf;

use holdoff_server::Options;

use super::PlaceArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen: a loopback address, unless everybody needs a token; port 0 means any that is free
    #[arg(long, value_name = "ADDR", default_value_t = Options::LISTEN)]
    pub(crate) listen: SocketAddr,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// Have everybody need an API token; `holdoff token create` makes one
    #[arg(long)]
    pub(crate) require_token: bool,

    /// The certificate, as PEM; it is read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = clap::ValueHint::FilePath)]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The certificate's private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,

    /// Serve without TLS where others can listen in: behind a proxy that has it
    #[arg(long)]
    pub(crate) insecure: bool,

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
