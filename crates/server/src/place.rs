//! The store of the work.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;

/// The file in the data directory.
const FILE: &str = "holdoff.db";

/// The store of the work: a store's address, or a SQLite file in a data directory.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    url: String,
    file: Option<PathBuf>,
}

impl Place {
    /// The store at this address: `sqlite:FILE` or `postgres://…`.
    pub fn store(url: impl Into<String>) -> Self {
        Self { url: url.into(), file: None }
    }

    /// The file `holdoff.db` in this directory.
    pub fn directory(directory: impl AsRef<Path>) -> Self {
        let file = directory.as_ref().join(FILE);
        // These two characters have a meaning in a URL.
        let path = file.to_string_lossy().replace('%', "%25").replace('?', "%3f");
        Self { url: format!("sqlite://{path}"), file: Some(file) }
    }

    /// Returns the data directory, if it is one.
    pub fn folder(&self) -> Option<&Path> {
        self.file.as_deref()?.parent()
    }

    /// Returns the store's address. It may contain a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Creates the directory and the file if they do not exist. Only their owner may read them.
    pub fn make(&self) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        let cannot = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Directory { path, source }
        };
        if let Some(directory) = file.parent() {
            private_directory(directory).map_err(cannot(directory))?;
        }
        private_file(file).map_err(cannot(file))
    }

    /// Returns the file in the data directory, if it does not exist yet.
    pub fn missing_file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|file| !file.exists())
    }

    /// Returns the store's name as a prefix of an error message, unless the error names it itself.
    pub(crate) fn preface(&self, error: &holdoff_work::Error) -> String {
        match error {
            holdoff_work::Error::Address { .. } => String::new(),
            _ => format!("cannot keep work in {self}: "),
        }
    }

    /// Returns a hint to append to an error message.
    pub(crate) fn hint(&self, error: &holdoff_work::Error) -> &'static str {
        match error {
            holdoff_work::Error::Store { .. } if self.is_postgres() => {
                ". Is the server running and reachable, does the database exist, and may this user sign in?"
            }
            holdoff_work::Error::Store { .. } => {
                ". Is it a file of holdoff's on a local disk, in a directory you may write to?"
            }
            _ => "",
        }
    }

    fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }
}

/// Shows the address without its password, and without the query parameters, which may contain one.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            return write!(f, "{} (SQLite)", file.display());
        }
        let address = self.url.split('?').next().unwrap_or_default();
        if let Some(path) = address.strip_prefix("sqlite:") {
            return write!(f, "{} (SQLite)", path.strip_prefix("//").unwrap_or(path));
        }
        let Some((scheme, rest)) = address.split_once("://") else { return f.write_str(address) };
        let (user, host) = rest.rsplit_once('@').unwrap_or(("", rest));
        let user = user.split(':').next().unwrap_or_default();
        let at = if user.is_empty() { "" } else { "@" };
        let kind = if self.is_postgres() { " (Postgres)" } else { "" };
        write!(f, "{scheme}://{user}{at}{host}{kind}")
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(unix)]
fn private_directory(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn private_directory(path: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Creates a file that only its owner may read. SQLite gives the files beside it the same permissions.
fn private_file(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let shown = |url: &str| Place::store(url).to_string();
        assert_eq!(shown("postgres://me:secret@db/x?password=again"), "postgres://me@db/x (Postgres)");
        assert_eq!(shown("postgres://me:p@ss@db/x"), "postgres://me@db/x (Postgres)");
        assert_eq!(shown("postgres:///x?host=/run"), "postgres:///x (Postgres)");
        assert_eq!(shown("sqlite:a.db?mode=rwc"), "a.db (SQLite)");
        assert_eq!(shown("sqlite:///tmp/a.db"), "/tmp/a.db (SQLite)");
        assert_eq!(shown("mysql"), "mysql");
        assert_eq!(shown("mysql://me:secret@db/x"), "mysql://me@db/x");
        assert_eq!(shown("kubernetes:jobs"), "kubernetes:jobs");
        let place = Place::store("postgres://me:secret@db/x");
        assert_eq!(format!("{place:?}"), "postgres://me@db/x (Postgres)");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_made_belongs_to_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let place = Place::directory(folder.path().join("odd %41?name").join("inside"));
        assert!(place.missing_file().is_some());
        place.make().unwrap();
        place.make().unwrap();
        assert!(place.missing_file().is_none());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = folder.path().join("odd %41?name").join("inside").join(FILE);
        assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o700, 0o600));
    }
}
