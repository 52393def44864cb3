//! `holdoff serve`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::{format_duration, parse_duration};
use holdoff_server::LogFormat;

use super::PlaceArgs;
use crate::config::Given;

/// Every flag has a value of the file's `[server]` behind it; the defaults stand there.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen: a loopback address, unless everybody needs a token; port 0 means any that is free [default:
    /// 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

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

    /// How many HTTP steps run at once [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) concurrency: Option<u32>,

    #[arg(
        long,
        value_name = "FILTER",
        help = "What is logged to stderr, such as debug or warn,holdoff_work=debug [default: $HOLDOFF_LOG, then \
                $RUST_LOG, then info]"
    )]
    pub(crate) log: Option<String>,

    /// How it is logged; auto is pretty on a terminal [default: auto]
    #[arg(long, value_name = "FORMAT", value_parser = LogFormat::ALL.map(LogFormat::name))]
    pub(crate) log_format: Option<String>,

    /// How long requests are still taken in after SIGTERM, while /readyz says no [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) grace: Option<Duration>,

    /// How long steps that run are then waited for, before they are put back [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) patience: Option<Duration>,
}

impl ServeArgs {
    /// Returns the values set on the command line.
    pub(crate) fn given(&self) -> Vec<Given> {
        let text = |text: String| toml::Value::String(text);
        let time = |time: Duration| text(format_duration(time));
        let path = |path: &PathBuf| text(path.display().to_string());
        let values = [
            ("server.listen", "--listen", self.listen.map(|address| text(address.to_string()))),
            ("server.concurrency", "--concurrency", self.concurrency.map(|count| i64::from(count).into())),
            ("server.log", "--log", self.log.clone().map(text)),
            ("server.log_format", "--log-format", self.log_format.clone().map(text)),
            ("server.grace", "--grace", self.grace.map(time)),
            ("server.patience", "--patience", self.patience.map(time)),
            ("server.tokens", "--require-token", self.require_token.then(|| text("required".to_owned()))),
            ("server.insecure", "--insecure", self.insecure.then(|| true.into())),
            ("server.tls.cert", "--tls-cert", self.tls_cert.as_ref().map(path)),
            ("server.tls.key", "--tls-key", self.tls_key.as_ref().map(path)),
        ];
        let given = |(path, flag, value): (&'static str, &'static str, Option<toml::Value>)| {
            Some(Given { path, flag, value: value? })
        };
        values.into_iter().filter_map(given).chain(self.place.given()).collect()
    }
}
