//! Where work is kept.

use std::path::PathBuf;

use clap::ValueHint;

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
