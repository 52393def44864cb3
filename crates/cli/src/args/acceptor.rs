//! `holdoff acceptor`

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::Given;

/// Every flag has a value of the file's `[acceptor]` behind it; the defaults stand there.
#[derive(clap::Args, Debug)]
pub(crate) struct AcceptorArgs {
    /// Where to listen; port 0 means any that is free [default: 127.0.0.1:4747]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// The directory of its key and its store; both are made if need be
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,

    /// Who may ask: a file with a key on each line, or `anyone` [default: anyone on loopback; elsewhere it must be
    /// said]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) allow: Option<PathBuf>,
}

impl AcceptorArgs {
    /// Returns the values set on the command line.
    pub(crate) fn given(&self) -> Vec<Given> {
        let path = |path: &PathBuf| toml::Value::String(path.display().to_string());
        let values = [
            ("acceptor.listen", "--listen", self.listen.map(|address| address.to_string().into())),
            ("acceptor.data", "--data", self.data.as_ref().map(path)),
            ("acceptor.allow", "--allow", self.allow.as_ref().map(path)),
        ];
        let given = |(path, flag, value): (&'static str, &'static str, Option<toml::Value>)| {
            Some(Given { path, flag, value: value? })
        };
        values.into_iter().filter_map(given).collect()
    }
}
