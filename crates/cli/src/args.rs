//! The arguments that several commands share.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::config::FlagValue;

/// The help headings of shared arguments.
pub(crate) mod heading {
    pub(crate) const GLOBAL: &str = "Global options";
    pub(crate) const STORE: &str = "Store options";
    pub(crate) const DAEMON: &str = "Daemon options";
}

/// The arguments of every command.
#[derive(clap::Args, Debug)]
pub(crate) struct GlobalArgs {
    /// Configuration file [default: holdoff.toml in the current directory, if it exists]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = heading::GLOBAL)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON
    #[arg(long, global = true, help_heading = heading::GLOBAL)]
    pub(crate) json: bool,
}

/// The arguments that select the store.
#[derive(clap::Args, Debug)]
pub(crate) struct StoreArgs {
    #[arg(
        long,
        global = true,
        value_name = "URL",
        conflicts_with = "data",
        help_heading = heading::STORE,
        help = "Store URL: sqlite:FILE or postgres://USER@HOST/DATABASE; for locks also kubernetes:NAMESPACE \
                [default: $HOLDOFF_STORE, then --data]"
    )]
    pub(crate) store: Option<String>,

    /// Directory of the SQLite store [default: holdoff in the user's data directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = heading::STORE)]
    pub(crate) data: Option<PathBuf>,
}

impl StoreArgs {
    /// Returns the values set on the command line.
    pub(crate) fn flag_values(&self) -> Vec<FlagValue> {
        let store = self.store.clone().map(toml::Value::String);
        FlagValue::collect([
            ("server.store", "--store", store),
            ("server.data", "--data", self.data.as_deref().map(path_value)),
        ])
    }
}

/// Parses the address and the port that a process listens on.
pub(crate) fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        // A port alone and a host's name are the most frequent mistakes.
        let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let port = port.map_or_else(|| "PORT".to_owned(), |port| port.to_string());
        format!("expected an IP address and a port, such as 127.0.0.1:{port} or [::1]:{port}")
    })
}

/// Returns a path as a value of the configuration.
pub(crate) fn path_value(path: &Path) -> toml::Value {
    toml::Value::String(path.display().to_string())
}

/// Returns the help of a flag whose default comes from the settings.
pub(crate) fn with_default(help: &str, default: impl std::fmt::Display) -> String {
    format!("{help} [default: {default}]")
}
