//! The arguments that select the store.

use std::path::PathBuf;

use clap::ValueHint;

use crate::config::Given;

#[derive(clap::Args, Debug)]
pub(crate) struct PlaceArgs {
    #[arg(
        long,
        global = true,
        value_name = "URL",
        conflicts_with = "data",
        help = "The store: sqlite:FILE or postgres://USER@HOST/DATABASE [default: $HOLDOFF_STORE, then --data]"
    )]
    pub(crate) store: Option<String>,

    /// The directory of the SQLite file [default: holdoff in the user's data directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
}

impl PlaceArgs {
    /// Returns the values set on the command line.
    pub(crate) fn given(&self) -> Vec<Given> {
        let store = self.store.clone().map(|url| ("server.store", "--store", url));
        let data = self.data.as_ref().map(|path| ("server.data", "--data", path.display().to_string()));
        let given = |(path, flag, text)| Given { path, flag, value: toml::Value::String(text) };
        store.into_iter().chain(data).map(given).collect()
    }
}
