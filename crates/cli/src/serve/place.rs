//! Selects the store. The daemon and the commands that read the store use the same rules.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use holdoff_server::Place;

use crate::args::PlaceArgs;
use crate::config::{Config, Origin, load_layers};
use crate::failure::Failure;

/// Selects the store from the last layer that names one: the file, a variable or a flag. The default is the user's
/// data directory.
pub(crate) fn place(args: &PlaceArgs, config: Option<&Path>) -> Result<Place, Failure> {
    place_of(&load_layers(config, args.given())?)
}

/// Resolves the store and the directory, which exclude each other. The later layer wins; within one layer, the store
/// wins.
pub(crate) fn place_of(config: &Config) -> Result<Place, Failure> {
    let (store, data) = (config.origin("server.store"), config.origin("server.data"));
    let is_later = |one: &Origin, other: &Origin| rank(one) >= rank(other);
    match (&config.whole.server.running.store, &config.whole.server.running.data) {
        (Some(url), None) => return Ok(Place::store(url)),
        (Some(url), Some(_)) if is_later(&store, &data) => return Ok(Place::store(url)),
        (_, Some(directory)) => return Ok(Place::directory(directory)),
        (None, None) => {}
    }
    data_directory().map(Place::directory).ok_or_else(|| {
        Failure::Usage(
            "there is no home directory to keep work in; name one by --data DIR or --store URL".to_owned(),
        )
    })
}

/// Returns the directory of the ledgers: the one in the file, or a directory beside the work if the work is in a
/// directory.
pub(crate) fn ledgers_of(config: &Config, place: &Place) -> Option<PathBuf> {
    let named = config.whole.ledger.data.clone();
    named.or_else(|| place.folder().map(|folder| folder.join("ledger")))
}

/// Returns this user's data directory for holdoff, if the environment has one.
pub(crate) fn data_directory() -> Option<PathBuf> {
    user_directory(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))
}

fn rank(origin: &Origin) -> u8 {
    match origin {
        Origin::Default => 0,
        Origin::File(_) => 1,
        Origin::Variable(_) => 2,
        Origin::Flag(_) => 3,
    }
}

/// Follows the XDG base directory specification, which ignores relative paths.
fn user_directory(data: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute(data).or_else(|| Some(absolute(home)?.join(".local/share")))?;
    Some(data.join("holdoff"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_is_where_one_looks_for_it() {
        let found = |data: Option<&str>, home: Option<&str>| {
            user_directory(data.map(Into::into), home.map(Into::into)).map(|path| path.display().to_string())
        };
        assert_eq!(found(Some("/d"), Some("/h")).as_deref(), Some("/d/holdoff"));
        assert_eq!(found(None, Some("/h")).as_deref(), Some("/h/.local/share/holdoff"));
        assert_eq!(found(Some("d"), Some("/h")).as_deref(), Some("/h/.local/share/holdoff"));
        assert_eq!(found(Some(""), None), None);
    }
}
