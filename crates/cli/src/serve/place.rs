//! Where work is kept: the same for whoever serves it and whoever looks at it.

use std::ffi::OsString;
use std::path::PathBuf;

use holdoff_server::Place;

use crate::args::PlaceArgs;
use crate::failure::Failure;

/// The variable that names the store for whoever names none.
const VARIABLE: &str = "HOLDOFF_STORE";

/// What was named; then what the environment names; then the user's data directory.
pub(crate) fn place(args: &PlaceArgs) -> Result<Place, Failure> {
    if let Some(url) = &args.store {
        return Ok(Place::store(url));
    }
    if let Some(directory) = &args.data {
        return Ok(Place::directory(directory));
    }
    if let Some(url) = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty()) {
        return Ok(Place::store(url));
    }
    let directory = user_directory(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"));
    directory.map(Place::directory).ok_or_else(|| {
        Failure::Usage(
            "there is no home directory to keep work in; name one by --data DIR or --store URL".to_owned(),
        )
    })
}

/// As the XDG base directories have it: a relative path is passed over.
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
